#!/usr/bin/env bash
# Add a night's recordings to their branch: `REMOTE=URL HEAD=SHA GH_TOKEN=... runner/push-results.sh RESULTS.tar`, in
# main's checkout. The first night starts the branch, which has no history of main. Its file `recorded` names the commit
# after which the next night begins: HEAD, or one before it where the night ended early.
set -euo pipefail

branch=flopwatch-results
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The token goes by the environment, where no other program's list of arguments shows it.
header=$(printf 'x-access-token:%s' "$GH_TOKEN" | base64 --wrap=0)
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=http.extraheader GIT_CONFIG_VALUE_0="AUTHORIZATION: basic $header"

git init --quiet --initial-branch="$branch" "$folder"
if git -C "$folder" fetch --quiet --depth=1 "$REMOTE" "$branch" 2> /dev/null; then
  git -C "$folder" reset --quiet --hard FETCH_HEAD
elif [[ -n $(git ls-remote "$REMOTE" "refs/heads/$branch") ]]; then
  echo "the branch $branch cannot be fetched" >&2
  exit 1
fi

if [[ $(git rev-parse --is-shallow-repository) != false ]]; then
  git fetch --quiet --unshallow "$REMOTE" "$HEAD"
fi
env -u GH_TOKEN -u GIT_CONFIG_COUNT -u GIT_CONFIG_VALUE_0 python3 -m runner.store "$1" "$folder" "$HEAD"
recorded=$(< "$folder/recorded")
if [[ $recorded != "$HEAD" ]]; then
  echo "::warning::recorded up to $recorded, not up to $HEAD: the log of the sandbox says why; the next night goes on there"
fi
git -C "$folder" add --all
git -C "$folder" -c user.name=github-actions -c user.email=github-actions@users.noreply.github.com \
  commit --quiet --message "Record up to $recorded"
git -C "$folder" push --quiet "$REMOTE" "HEAD:refs/heads/$branch"
