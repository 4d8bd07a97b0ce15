/* The CUDA driver as far as Triton's launcher calls it, on a machine that has none. It loads and launches nothing.
 *
 * Built by stand_in.py with the headers that Triton brings. Every module that is "loaded" gets a function of its own, so
 * that a launch says which kernel it was. What the last launch was given can be read; where nobody asked for it
 * (`stand_in_count` is 0), a launch costs no more than its call. A tensor map begins with a hash of what it was encoded
 * from, so that two that are equal there were given the same.
 */
#include <cuda.h>
#include <string.h>

#define ARGUMENTS 64

int stand_in_count = 0;
int stand_in_encoded = 0; /* tensor maps */
int stand_in_bytes[ARGUMENTS];
unsigned long long stand_in_values[ARGUMENTS];
unsigned long long stand_in_launch[8]; /* launches, function, grid, threads, shared bytes, stream */

static unsigned long long functions = 0;

CUresult cuInit(unsigned int flags) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = 12080; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "stand-in"; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { *context = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 1 << 20; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule *module, const void *image) { *module = (CUmodule)1; return CUDA_SUCCESS; }
CUresult cuModuleUnload(CUmodule module) { return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute name, int value) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config) { *count = 1; return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)++functions;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute name, CUfunction function) {
  *value = name == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}

/* Of an H200. */
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute name, CUdevice device) {
  switch (name) {
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
  default: *value = 65536;
  }
  return CUDA_SUCCESS;
}

static unsigned long long hashed(unsigned long long hash, const void *data, size_t bytes) { /* FNV-1a */
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
  return hash;
}

/* Every address is the GPU's. */
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute name, CUdeviceptr pointer) {
  *(CUdeviceptr *)value = pointer;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *names, void **values, CUdeviceptr pointer) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  int kinds[] = {type, rank, interleave, swizzle, promotion, fill};
  unsigned long long hash = hashed(0xcbf29ce484222325ull, kinds, sizeof(kinds));
  hash = hashed(hash, &address, sizeof(address));
  hash = hashed(hash, sizes, rank * sizeof(*sizes));
  hash = hashed(hash, strides, (rank - 1) * sizeof(*strides));
  hash = hashed(hash, box, rank * sizeof(*box));
  hash = hashed(hash, steps, rank * sizeof(*steps));
  memcpy(map, &hash, sizeof(hash));
  stand_in_encoded++;
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower, const int *upper,
                                 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
  if (stand_in_count == 0)
    return CUDA_SUCCESS;
  stand_in_launch[0]++;
  stand_in_launch[1] = (unsigned long long)function;
  stand_in_launch[2] = config->gridDimX;
  stand_in_launch[3] = config->gridDimY;
  stand_in_launch[4] = config->gridDimZ;
  stand_in_launch[5] = config->blockDimX;
  stand_in_launch[6] = config->sharedMemBytes;
  stand_in_launch[7] = (unsigned long long)config->hStream;
  for (int i = 0; i < stand_in_count; i++) {
    stand_in_values[i] = 0;
    memcpy(&stand_in_values[i], arguments[i], stand_in_bytes[i]);
  }
  return CUDA_SUCCESS;
}
