"""Where the time of a case goes: Proton's tree and timeline, what a call costs the host, counters, and the roofline."""

from flopwatch.profile.result import Counted, Profile, ProfiledCase, ProfiledPair
from flopwatch.profile.run import ProfileOptions, run_profile

__all__ = ["Counted", "Profile", "ProfileOptions", "ProfiledCase", "ProfiledPair", "run_profile"]
