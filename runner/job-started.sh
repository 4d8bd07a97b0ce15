#!/usr/bin/env bash
# ACTIONS_RUNNER_HOOK_JOB_STARTED: what no workflow file can edit. A job runs here only if the machine's owner has listed
# its event and its workflow, at its branch, in the file of jobs; any other ends before its first step.
#
#   # event            workflow @ ref
#   workflow_dispatch  OWNER/REPO/.github/workflows/gpu-gate.yml@refs/heads/main
#
# The second column is a pattern of bash, so that a branch may be a *; write one only where everybody who can push is
# trusted with this machine.
set -euo pipefail

jobs=${1:-/etc/flopwatch/jobs}
event=${GITHUB_EVENT_NAME:-}
workflow=${GITHUB_WORKFLOW_REF:-}

refuse() {
  printf 'flopwatch: this runner refuses the job\n  why: %s\n  do:  %s\n' "$1" "$2" >&2
  exit 1
}

[[ -r $jobs && ! -L $jobs ]] || refuse "$jobs cannot be read" "see docs/runners.md"
# A name with blanks could be read as another line's; neither GitHub's events nor its paths have any.
[[ $event =~ ^[a-z_]+$ && $workflow =~ ^[^[:space:]]+$ ]] || refuse "the job has no event or workflow" "start it anew"

while read -r allowed_event allowed_workflow rest || [[ $allowed_event != "" ]]; do
  [[ $allowed_event == "" || $allowed_event == "#"* ]] && continue
  [[ $allowed_workflow != "" && $rest == "" ]] || refuse "$jobs has a line that is not two words" "correct it"
  # shellcheck disable=SC2053 # the owner's pattern, unquoted on purpose
  if [[ $event == "$allowed_event" && $workflow == $allowed_workflow ]]; then
    exit 0
  fi
done < "$jobs"
refuse "$event of $workflow is not listed in $jobs" "start the workflow on the main branch, or list it"
