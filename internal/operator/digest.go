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

// shownTables is the number of tables that a digest names.
const shownTables = 4

// Digest summarizes the statistics of a run of any kind. Items is the sum of the figures
// whose names end in "processed". A statistic that is an object of numbers counts rows by
// table.
type Digest struct {
	// Unit is the noun for an item, such as tombstone.
	Unit   string
	Items  int64
	Rows   int64
	Tables []TableCount
	// MoreTables is the number of tables that are not named.
	MoreTables int
	// Figures are the other numbers and short texts, such as "files 3".
	Figures []string
}

// TableCount is the number of changed rows of one table.
type TableCount struct {
	Name string
	Rows int64
}

// DigestOf summarizes statistics. Statistics that it cannot parse have an empty digest.
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
		// Skip the counts that are not changes of this run: "kept" and "due" rows were
		// not changed, and other counts include the rows of "current".
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
	d.Figures = figures(stats)
	if more := len(d.Tables) - shownTables; more > 0 {
		d.Tables, d.MoreTables = d.Tables[:shownTables], more
	}
	return d
}

// NoProgress is the outcome of a run that ended without an error but changed nothing
// because of errors in single rows.
const NoProgress = "no_progress"

// Ending returns the outcome of a run for people.
func Ending(outcome *string, stats json.RawMessage) string {
	if outcome == nil {
		return ""
	}
	if digest := DigestOf(stats, ""); *outcome == string(jobrun.Done) && digest.Items+digest.Rows == 0 &&
		len(parseRunStats(stats).Errors) > 0 {
		return NoProgress
	}
	return *outcome
}

// omitted matches the names of statistics that describe the run itself, and of statistics
// that the digest reports elsewhere.
var omitted = regexp.MustCompile("^(batches|total|connection|pace|holder|waiting_.*|.*_percent|.*_seconds|.*_per_second|.*_count|(.*_)?processed)$")

// figures returns the numbers that are not 0 and the short texts of statistics, with
// their names.
func figures(stats map[string]json.RawMessage) (named []string) {
	for _, key := range slices.Sorted(maps.Keys(stats)) {
		var value any
		if omitted.MatchString(key) || json.Unmarshal(stats[key], &value) != nil {
			continue
		}
		name := strings.ReplaceAll(key, "_", " ")
		switch value := value.(type) {
		case float64:
			if whole := int64(value); value != 0 && float64(whole) == value && !strings.HasSuffix(key, "_id") {
				named = append(named, name+" "+render.Grouped(whole))
			} else if value != 0 {
				named = append(named, name+" "+strconv.FormatFloat(value, 'f', -1, 64))
			}
		case string:
			if value != "" {
				named = append(named, name+" "+strings.ReplaceAll(value, "_", " "))
			}
		}
	}
	return named
}

// Pace is the speed of a run.
type Pace struct {
	Digest Digest
	// RowsPerSecond is 0 in the first half second of a run.
	RowsPerSecond int64
	// Left is the estimated time until the backlog is done, or 0 if it is unknown.
	Left time.Duration
	// Total is the backlog at the start of the run, or 0 if it is unknown.
	Total int64
}

// PaceOf estimates the remaining time of a run. There is no estimate if the backlog was
// not counted completely or the run waits.
func PaceOf(run Pass, left components.Backlog, unit string, now time.Time) Pace {
	out := Pace{Digest: DigestOf(run.Stats, unit)}
	ran := now.Sub(run.StartedAt)
	if ran < time.Second/2 {
		return out
	}
	out.RowsPerSecond = int64(float64(out.Digest.Rows) / ran.Seconds())
	if left.Capped || parseRunStats(run.Stats).WaitingFor != "" {
		return out
	}
	// The run does not process deferred rows.
	pending := max(0, left.Pending-left.Deferred)
	out.Total = out.Digest.Items + pending
	if out.Digest.Items > 0 {
		out.Left = time.Duration(float64(ran) / float64(out.Digest.Items) * float64(pending))
	}
	return out
}
