# The result of TuneD itself for profiles. Usage: python3 tuned.py ROOT "NAME..."... It prints, for
# each argument, the parameters in the merged profile's section [sysctl], before variables
# are expanded.
import json, os, sys
sys.path.insert(0, "/usr/lib/python3/dist-packages")
from tuned.profiles.exceptions import InvalidProfileException
from tuned.profiles.factory import Factory
from tuned.profiles.loader import Loader
from tuned.profiles.locator import Locator
from tuned.profiles.merger import Merger
from tuned.profiles.variables import Variables
from tuned.utils.commands import commands

root = sys.argv[1]
dirs = [os.path.join(root, d) for d in ("usr/lib/tuned", "usr/lib/tuned/profiles", "etc/tuned", "etc/tuned/profiles")]
unquote = commands().unquote
answers = {}
for names in sys.argv[2:]:
    try:
        profile = Loader(Locator(dirs), Factory(), Merger(), None, Variables()).load(names.split())
    except InvalidProfileException:  # an assertion of a profile about this machine
        continue
    answers[names] = found = {}
    for unit in profile.units.values():
        if unit.name == "sysctl" and unit.enabled and not unit.uname_regex and not unit.cpuinfo_regex:
            for key, value in unit.options.items():
                found[key.replace(".", "/")] = " ".join(unquote(value).split())
print(json.dumps(answers))
