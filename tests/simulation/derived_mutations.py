"""Switches for what is believed of runs of the key index, with each of which a row is lost or is there twice,
and for what a clustering pass makes of its plan.
"""

from __future__ import annotations

from streaming_sink.clustering import groups
from streaming_sink.keyed import searched_files
from streaming_sink.tasks import run_files
from streaming_sink.tasks.key_index import index, merging, runs
from streaming_sink.tasks.keys.keyed_files import KeyedFiles
from tests.simulation.switch import Switch

DERIVED_SWITCHES = (
    Switch("R25", "a run that was deleted passes for one without the keys", index.KeyIndex, "lookup",
           "# upkeep has deleted it since\n            scanned += part.files",
           "# upkeep has deleted it since", indexed=True),
    Switch("R25", "a run that is damaged passes for one without the keys", index.KeyIndex, "lookup",
           "damaged.append(part.path)\n            scanned += part.files",
           "damaged.append(part.path)", indexed=True),
    Switch("R25", "rows of files that are not live are found in a run", index.KeyIndex, "lookup",
           "live = part.has[numbers]", "live = np.ones(len(numbers), bool)", indexed=True),
    Switch("R25", "a block of a run is believed though its checksum differs", run_files.RunLayout, "_columns",
           "if crc32(data) != crc:", "if False:", indexed=True),
    Switch("R25", "a run of another key is believed", runs, "read_footer",
           'if facts["key"] != key_digest:', "if False:", indexed=True),
    Switch("R25", "a run is believed that says other rows of a file", KeyedFiles, "fingerprints",
           "found[0] ^= self.rows.astype(np.uint64) * _SPREAD", "pass", indexed=True),
    Switch("R25", "beside an index no file is scanned", searched_files, "_hold",
           "uncovered = tuple(", "uncovered = () if runs else tuple(", indexed=True),
    Switch("R25", "what was in a run passes for what is, once the run has left", searched_files.SearchedFiles,
           "_is_right", "stay = held.covered.keys() <= set(self._places.paths)", "stay = True", indexed=True),
    Switch("R25", "a merge of runs numbers files as each of them does", merging, "merge_runs",
           "numbers[number] = len(files)", "numbers[number] = number", indexed=True),
    Switch("R25", "a merge of runs leaves out rows", merging, "_merge",
           "written += len(merged.high)",
           "written += len(merged.high)\n        break", indexed=True),
    Switch("R11", "a pass does not see that an input of its plan has left", groups, "match_groups",
           "gone = next((path for path in planned.inputs if path not in live), None)", "gone = None",
           planned=True),
)  # fmt: skip
