package operator

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sexton/internal/components"
	"sexton/internal/jobrun"
	"sexton/internal/render"
)

// shownTables is how many tables of a run are named.
const shownTables = 4

// Digest holds the common part of the statistics of all kinds: counts of rows worked off
// end in "processed", and objects of numbers count rows by table.
type Digest struct {
	// Unit names an item, such as tombstone.
	Unit   string
	Items  int64
	Rows   int64
	Tables []TableCount
	// MoreTables counts tables that are not named.
	MoreTables int
	// Said are the other figures, of a pass that has no rows and no items to tell of,
	// such as "files 3".
	Said []string
}

// TableCount counts the rows of one table.
type TableCount struct {
	Name string
	Rows int64
}

// DigestOf reads statistics. Those of an unknown shape say nothing.
func DigestOf(raw json.RawMessage, unit string) Digest {
	var stats map[string]json.RawMessage
	if err := json.Unmarshal(raw, &stats); err != nil {
		return Digest{Unit: unit}
	}
	d := Digest{Unit: unit}
	byTable := map[string]int64{}
	for key, value := range stats {
		var items int64
		if (key == "processed" || strings.HasSuffix(key, "_processed")) && json.Unmarshal(value, &items) == nil {
			d.Items += items
		}
		var counts map[string]int64
		// What is under way now has counts that are in the others as well. Kept and due
		// rows are there still.
		if key == "current" || key == "kept" || key == "due" || key == jobrun.LatencyKey ||
			json.Unmarshal(value, &counts) != nil {
			continue
		}
		for table, rows := range counts {
			byTable[table] += rows
			d.Rows += rows
		}
	}
	for table, rows := range byTable {
		if rows > 0 {
			d.Tables = append(d.Tables, TableCount{Name: table, Rows: rows})
		}
	}
	slices.SortFunc(d.Tables, func(a, b TableCount) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), strings.Compare(a.Name, b.Name))
	})
	if d.Rows == 0 {
		d.Said = said(stats)
	}
	if more := len(d.Tables) - shownTables; more > 0 {
		d.Tables, d.MoreTables = d.Tables[:shownTables], more
	}
	return d
}

// NoProgress is the ending of a run that went through and met nothing but errors in
// single rows.
const NoProgress = "no_progress"

// Ending is the outcome of a run for people.
func Ending(outcome *string, stats json.RawMessage) string {
	if outcome == nil {
		return ""
	}
	if digest := DigestOf(stats, ""); *outcome == string(jobrun.Done) && digest.Items+digest.Rows == 0 &&
		len(toldBy(stats).Errors) > 0 {
		return NoProgress
	}
	return *outcome
}

// notSaid are figures of a pass itself, and the ones that are reported on their own.
var notSaid = regexp.MustCompile("^(batches|total|connection|pace|holder|waiting_.*|.*_percent|.*_seconds|.*_per_second|.*_count|(.*_)?processed)$")

// said are numbers of statistics that are not 0, and short texts, by their names.
func said(stats map[string]json.RawMessage) (figures []string) {
	for _, key := range slices.Sorted(maps.Keys(stats)) {
		var value any
		if notSaid.MatchString(key) || json.Unmarshal(stats[key], &value) != nil {
			continue
		}
		name := strings.ReplaceAll(key, "_", " ")
		switch value := value.(type) {
		case float64:
			if whole := int64(value); value != 0 && float64(whole) == value && !strings.HasSuffix(key, "_id") {
				figures = append(figures, name+" "+render.Grouped(whole))
			} else if value != 0 {
				figures = append(figures, name+" "+strconv.FormatFloat(value, 'f', -1, 64))
			}
		case string:
			if value != "" {
				figures = append(figures, name+" "+strings.ReplaceAll(value, "_", " "))
			}
		}
	}
	return figures
}

// Pace is how fast a pass goes.
type Pace struct {
	Digest Digest
	// RowsPerSecond is 0 where the pass has only begun.
	RowsPerSecond int64
	// Left is how long the backlog will take at this rate; 0 where that cannot be told.
	Left time.Duration
	// Whole is the backlog at the beginning of the pass; 0 if it is not known.
	Whole int64
}

// PaceOf compares what a pass has done with what is left. A backlog that was not counted
// to its end gives no time, nor does a pass that waits.
func PaceOf(run Pass, left components.Backlog, unit string, now time.Time) Pace {
	out := Pace{Digest: DigestOf(run.Stats, unit)}
	ran := now.Sub(run.StartedAt)
	if ran < time.Second/2 {
		return out
	}
	out.RowsPerSecond = int64(float64(out.Digest.Rows) / ran.Seconds())
	if left.Capped || toldBy(run.Stats).WaitingFor != "" {
		return out
	}
	pending := max(0, left.Pending-left.Deferred) // What is put off is not for this pass.
	out.Whole = out.Digest.Items + pending
	if out.Digest.Items > 0 {
		out.Left = time.Duration(float64(ran) / float64(out.Digest.Items) * float64(pending))
	}
	return out
}
