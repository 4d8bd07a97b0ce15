#!/usr/bin/env bash
# Install the sandbox and the hooks, owned by root: `sudo runner/install.sh OWNER/REPO`, from a checkout of main.
set -euo pipefail

[[ $# == 1 && $1 =~ ^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$ ]] || {
  echo "usage: sudo runner/install.sh OWNER/REPO" >&2
  exit 2
}
root=${DESTDIR:-}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
library=$root/usr/local/lib/flopwatch
settings=$root/etc/flopwatch

install -d -m 755 "$library" "$settings" "$root/usr/local/bin"
install -m 755 "$here"/{sandbox.py,job-started.sh,job-completed.sh} "$library"
install -m 644 "$here"/{trial.py,limits.conf} "$library"
ln -sfn /usr/local/lib/flopwatch/sandbox.py "$root/usr/local/bin/flopwatch-sandbox"

# Settings that are there stay as they are.
[[ -e $settings/sandbox.toml ]] || install -m 644 "$here/sandbox.toml" "$settings/sandbox.toml"
if [[ ! -e $settings/jobs ]]; then
  workflows=$1/.github/workflows
  {
    echo "# event            workflow @ ref; docs/runners.md explains them"
    echo "workflow_dispatch  $workflows/gpu-gate.yml@refs/heads/main"
    echo "schedule           $workflows/nightly.yml@refs/heads/main"
    echo "workflow_dispatch  $workflows/nightly.yml@refs/heads/main"
  } > "$settings/jobs"
  chmod 644 "$settings/jobs"
fi
