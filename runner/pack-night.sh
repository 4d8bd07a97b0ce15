#!/usr/bin/env bash
# Pack the commits of main that were not recorded yet: `MAIN=main HEAD=SHA runner/pack-night.sh OUT.tar`, in a clone with
# all branches. The branch of recordings has the last one in the file `recorded`.
set -euo pipefail

last=""
if git rev-parse --quiet --verify refs/remotes/origin/flopwatch-results > /dev/null; then
  last=$(git show refs/remotes/origin/flopwatch-results:recorded)
  [[ $last =~ ^[0-9a-f]{40}$ ]] || { echo "the file 'recorded' has no commit" >&2 && exit 2; }
fi
python3 -m runner.pack record "$1" --main "$MAIN" --head "$HEAD" --base="$last"
