"""Where the numbers of `flopwatch.static.devices` are from, and how far each could be checked."""

from __future__ import annotations

import enum
from dataclasses import dataclass

_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_LLVM = "https://github.com/llvm/llvm-project/blob/main/llvm/lib/Target/AMDGPU"
_AMD = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs"


class Check(enum.Enum):
    """How a number was checked."""

    READ = "The document says so"
    DRIVER = "What the driver says on such a GPU, as published there"
    QUOTED = "Others quote the document so; it was not at hand"
    DERIVED = "Follows from other numbers, as is told"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What some numbers of a device are from.

    Attributes:
        numbers: names of fields of `Device` or of its `Peaks`.
        title: of the document.
        url: of the document.
        check: how far it was checked.
        says: what it says, where that is not the number itself, or where others say another.
    """

    numbers: tuple[str, ...]
    title: str
    url: str
    check: Check
    says: str = ""


def _cuda(capability: str, says: str = "") -> tuple[Source, ...]:
    """Return what NVIDIA says of every chip of a compute capability."""
    return (
        Source(
            numbers=(
                "max_shared_bytes_per_block",
                "shared_bytes_per_sm",
                "registers_per_sm",
                "max_warps_per_sm",
                "max_blocks_per_sm",
                "warp_size",
            ),
            title=f"CUDA programming guide, technical specifications of compute capability {capability}",
            url="https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html",
            check=Check.READ,
            says=says,
        ),
        Source(
            numbers=("reserved_shared_bytes_per_block",),
            title="NVIDIA/cccl, libcudacxx/include/cuda/__device/arch_traits.h",
            url="https://github.com/NVIDIA/cccl/blob/main/libcudacxx/include/cuda/__device/arch_traits.h",
            check=Check.READ,
            says="1024 from compute capability 8.0 on; the other limits are there, too, and the same",
        ),
    )


def _rocm(target: str) -> tuple[Source, ...]:
    """Return what AMD says of the compute units of CDNA 3 and 4, and of their caches."""
    return (
        Source(
            numbers=(
                "sms",
                "max_shared_bytes_per_block",
                "shared_bytes_per_sm",
                "registers_per_sm",
                "l2_bytes",
                "memory_bytes",
                "warp_size",
            ),
            title="ROCm, AMD GPU specifications",
            url="https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html",
            check=Check.READ,
            says=(
                "512 KiB of vector registers are 131072 of 4 bytes; 32 MiB of L2 are 4 MiB for each of 8 dies, and "
                "256 MiB of memory-side cache behind them are not counted. ROCm's driver tells the L2 of one die"
            ),
        ),
        Source(
            numbers=("max_warps_per_sm", "max_blocks_per_sm"),
            title="LLVM, AMDGPUBaseInfo.cpp, limits from gfx90a on",
            url=f"{_LLVM}/Utils/AMDGPUBaseInfo.cpp",
            check=Check.READ,
            says="8 waves for each of 4 SIMD units, and as many work-groups of one wave",
        ),
        Source(
            numbers=("reserved_shared_bytes_per_block",),
            title=f"LLVM, AMDGPU.td, {target}",
            url=f"{_LLVM}/AMDGPU.td",
            check=Check.DERIVED,
            says="a work-group can address all of a compute unit's LDS",
        ),
    )


_HOPPER = (
    *_cuda("9.0"),
    Source(
        numbers=("sms",),
        title="NVIDIA Hopper Architecture In-Depth",
        url="https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/",
        check=Check.READ,
        says="H100 SXM5: 132 SMs; an H200 is the same chip",
    ),
    Source(
        numbers=("float64", "float32", "tfloat32", "float16", "bfloat16", "float8", "int8"),
        title="NVIDIA H100 Tensor Core GPU, specifications of the SXM",
        url=f"{_NVIDIA}/h100/",
        check=Check.QUOTED,
        says=(
            "67, 67, 989, 1979, 1979, 3958 and 3958, from TF32 on with sparsity, which halves here; the digits that "
            "these lack are of 132 SMs at the 1830 MHz of the tensor cores, and at 1980 MHz for FP64 and FP32"
        ),
    ),
)

#: By a device's key.
SOURCES: dict[str, tuple[Source, ...]] = {
    "a100": (
        *_cuda("8.0"),
        Source(
            numbers=("sms", "l2_bytes", "float64", "float32", "tfloat32", "float16", "bfloat16", "int8"),
            title="NVIDIA Ampere Architecture In-Depth, table of the A100",
            url="https://developer.nvidia.com/blog/nvidia-ampere-architecture-in-depth/",
            check=Check.READ,
            says="FP64 of the tensor cores; 16 bits with sums of FP32, which costs nothing",
        ),
        Source(
            numbers=("memory_bytes", "memory_gbps"),
            title="NVIDIA A100 data sheet, the SXM of 80 GB",
            url=(
                "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
                "nvidia-a100-datasheet-nvidia-us-2188504-web.pdf"
            ),
            check=Check.QUOTED,
            says="2,039 GB/s: 5120 bits at 1593 MHz, twice a cycle. The driver tells 80 GiB",
        ),
    ),
    "h100": (
        *_HOPPER,
        Source(
            numbers=("l2_bytes",),
            title="NVIDIA Hopper Architecture In-Depth",
            url="https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/",
            check=Check.READ,
            says="50 MB, with 10 memory controllers",
        ),
        Source(
            numbers=("memory_bytes", "memory_gbps"),
            title="NVIDIA H100 Tensor Core GPU Architecture, table of the SXM5",
            url="https://resources.nvidia.com/en-us-tensor-core",
            check=Check.QUOTED,
            says="80 GB, 3352 GB/sec: 5120 bits at 2619 MHz, twice a cycle. The driver tells 79.6 GiB",
        ),
    ),
    "h200": (
        *_HOPPER,
        Source(
            numbers=("l2_bytes",),
            title="NVIDIA Hopper Architecture In-Depth",
            url="https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/",
            check=Check.DERIVED,
            says=(
                "the whole chip has 60 MB with 12 memory controllers, an H100 50 MB with 10; the 6144 bits of an H200 "
                "take 12, and its driver tells 60 MB"
            ),
        ),
        Source(
            numbers=("memory_bytes", "memory_gbps"),
            title="NVIDIA H200, specifications of the SXM",
            url=f"{_NVIDIA}/h200/",
            check=Check.QUOTED,
            says=(
                "141GB, 4.8TB/s; the driver tells 140.4 GiB, and the 3201 MHz of its memory twice a cycle on 6144 bits "
                "would make 4917 GB/s"
            ),
        ),
    ),
    "b200": (
        *_cuda("10.0"),
        Source(
            numbers=("sms", "l2_bytes"),
            title="pytorch/ao, pull request 4002",
            url="https://github.com/pytorch/ao/pull/4002",
            check=Check.DRIVER,
            says="148 SMs, 126.50 MB; the Blackwell tuning guide has 126 MB",
        ),
        Source(
            numbers=("memory_bytes",),
            title="Blackwell tuning guide",
            url="https://docs.nvidia.com/cuda/blackwell-tuning-guide/",
            check=Check.READ,
            says="up to 180 GB; the driver tells 178.4 GiB",
        ),
        Source(
            numbers=("memory_gbps", "tfloat32", "float16", "bfloat16", "float8", "int8"),
            title="NVIDIA Blackwell data sheet, HGX B200, of one GPU",
            url="https://nvdam.widen.net/s/wwnsxrhm2w/blackwell-datasheet-3384703",
            check=Check.QUOTED,
            says=(
                "7.7 TB/s, not the 8 of other pages: the driver tells 7680 bits at 3996 MHz, which twice a cycle make "
                "7672 GB/s. 2.2, 4.5, 4.5, 9 and 9 PFLOPS with sparsity, which halve here"
            ),
        ),
        Source(
            numbers=("float64", "float32"),
            title="NVIDIA HGX, HGX B200",
            url=f"{_NVIDIA}/hgx/",
            check=Check.QUOTED,
            says="296 and 600 TFLOPS of eight GPUs",
        ),
    ),
    "l40s": (
        *_cuda("8.9"),
        Source(
            numbers=("sms", "l2_bytes"),
            title="alvarobartt/cuda-device-query, of an L40S",
            url="https://github.com/alvarobartt/cuda-device-query",
            check=Check.DRIVER,
            says="142 SMs, 100663296 bytes; 48 MB, which databases have, is not what the driver says",
        ),
        Source(
            numbers=("memory_bytes", "memory_gbps", "float32", "tfloat32", "float8", "int8"),
            title="NVIDIA L40S data sheet",
            url="https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413",
            check=Check.QUOTED,
            says=(
                "48GB, 864GB/s, 91.6, 183, 733 and 733. Its FP8 is with sums of FP32, as that of an L40 is, of which "
                "NVIDIA says half. ECC takes a sixteenth of the memory, and the driver tells 44.3 GiB"
            ),
        ),
        Source(
            numbers=("float16", "bfloat16"),
            title="NVIDIA L40S data sheet",
            url="https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413",
            check=Check.DERIVED,
            says=(
                "362.05, and with sparsity 733, which is not its double: 142 SMs make the one at the 2490 MHz of an "
                "L40, the other at their own 2520 MHz, and that halves here. BF16 has sums of FP32, so that these cost "
                "nothing"
            ),
        ),
        Source(
            numbers=("float64",),
            title="NVIDIA Ada GPU Architecture",
            url="https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf",
            check=Check.DERIVED,
            says="1/64 of FP32: two cores a SM, and no tensor cores for it",
        ),
    ),
    "rtx5090": (
        *_cuda("12.0", says="The Blackwell tuning guide has 32 blocks, against this and cccl's 24"),
        Source(
            numbers=("sms", "l2_bytes"),
            title="dnakov/consumer-mamf, of an RTX 5090",
            url="https://huggingface.co/datasets/dnakov/consumer-mamf",
            check=Check.DRIVER,
            says="170 SMs, 96MB; the whole chip has 192 and 128",
        ),
        Source(
            numbers=(
                "memory_bytes",
                "memory_gbps",
                "float32",
                "tfloat32",
                "float16",
                "bfloat16",
                "float8",
                "int8",
            ),
            title="NVIDIA RTX Blackwell GPU Architecture, table 3",
            url=(
                "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/"
                "nvidia-rtx-blackwell-gpu-architecture.pdf"
            ),
            check=Check.QUOTED,
            says=(
                "with sums of FP32, as `tl.dot` has them: 209.5 of FP16 and 419 of FP8; sums of FP16 would double both"
            ),
        ),
        Source(
            numbers=("float64",),
            title="NVIDIA RTX Blackwell GPU Architecture",
            url=(
                "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/"
                "nvidia-rtx-blackwell-gpu-architecture.pdf"
            ),
            check=Check.DERIVED,
            says="1/64 of FP32: two cores a SM, and no tensor cores for it",
        ),
    ),
    "mi300x": (
        *_rocm("gfx942"),
        Source(
            numbers=("memory_gbps",),
            title="AMD, footnote MI300-05A",
            url="https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html",
            check=Check.QUOTED,
            says="5.325 TB/s: 8,192 bits at 5.2 Gbps",
        ),
        Source(
            numbers=("float64", "float32", "tfloat32", "float16", "bfloat16", "float8", "int8"),
            title="AMD Instinct MI300X data sheet",
            url=f"{_AMD}/data-sheets/amd-instinct-mi300x-data-sheet.pdf",
            check=Check.QUOTED,
            says="of the matrix cores",
        ),
    ),
    "mi350x": (
        *_rocm("gfx950"),
        Source(
            numbers=("memory_gbps", "float64", "float32", "float8", "int8"),
            title="AMD Instinct MI350X brochure",
            url=f"{_AMD}/product-briefs/amd-instinct-mi350x-gpu-brochure.pdf",
            check=Check.QUOTED,
            says="8 TB/s, 72.1, 144.2, 4614 and 4614; the 8 Gbps of its memory on 8,192 bits would make 8192 GB/s",
        ),
        Source(
            numbers=("float16", "bfloat16", "tfloat32"),
            title="AMD CDNA 4 architecture white paper, tables 1 and 2",
            url=f"{_AMD}/white-papers/amd-cdna-4-architecture-whitepaper.pdf",
            check=Check.DERIVED,
            says=(
                "4096 a cycle of each of 256 units at 2.2 GHz are 2306.9; the brochure's 2309.6 is not half of its own "
                "4614 of 8 bits. TF32 is no longer in the hardware"
            ),
        ),
    ),
}
