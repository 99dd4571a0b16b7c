package demo

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sexton/internal/definitions"
	"sexton/internal/words"
)

// Summary is the result of a demo.
type Summary struct {
	RowsLoaded int64 `json:"rows_loaded"`
	// ParentsDeleted counts the ones that the application deleted itself; what went along by real foreign keys, and
	// parents among the children, are in the job's own count. This and what follows up to the latencies is of the loose
	// foreign keys.
	ParentsDeleted    int64 `json:"parents_deleted"`
	ChildrenDeleted   int64 `json:"children_deleted"`
	ChildrenNullified int64 `json:"children_nullified"`
	// ChildrenUpdated got a value other than NULL.
	ChildrenUpdated int64 `json:"children_updated"`
	// OrphansLeft are counted by anti-joins of their own, after everything is drained; null where it is not.
	OrphansLeft *int64 `json:"orphans_left"`
	// P50LatencyMS and P99LatencyMS are from the commit of a parent's deletion to the end of its clean-up.
	P50LatencyMS float64 `json:"p50_latency_ms"`
	P99LatencyMS float64 `json:"p99_latency_ms"`
	Seconds      float64 `json:"seconds"`
	// Jobs has one object per kind of job.
	Jobs map[string]SceneSummary `json:"jobs"`

	scenes []SceneSummary
}

// SceneSummary is how a scene ended.
type SceneSummary struct {
	SceneState

	// Found holds the findings of the check; nil where there was none.
	Found []Finding
}

// MarshalJSON writes one flat object: acted, planned, waiting, p50_latency_ms and p99_latency_ms, the tally, and under
// check what was found by name, or null.
func (s SceneSummary) MarshalJSON() ([]byte, error) {
	out := s.Tally.flat()
	out["acted"], out["planned"], out["waiting"] = s.Acted, s.Planned, s.Backlog
	out["p50_latency_ms"], out["p99_latency_ms"] = s.Latency.P50, s.Latency.P99
	out["check"] = nil
	if s.Found != nil {
		found := map[string]int64{}
		for _, f := range s.Found {
			found[f.Name] = f.Count
		}
		out["check"] = found
	}
	return json.Marshal(out)
}

func newSummary(site Site, state State, took time.Duration) Summary {
	out := Summary{RowsLoaded: site.Rows, Seconds: math.Round(took.Seconds()*1e3) / 1e3, Jobs: map[string]SceneSummary{}}
	for _, scene := range state.Scenes {
		ended := SceneSummary{SceneState: scene}
		out.scenes = append(out.scenes, ended)
		out.Jobs[scene.Script.Kind] = ended
		if scene.Script.Kind == looseForeignKeysKind {
			out.children(site.Definitions, scene)
		}
	}
	return out
}

// children fills what stands at the top.
func (s *Summary) children(defs []definitions.Definition, scene SceneState) {
	s.ParentsDeleted, s.P50LatencyMS, s.P99LatencyMS = scene.Acted, scene.Latency.P50, scene.Latency.P99
	s.ChildrenDeleted = sum(scene.Tally.ByTable["delete_count_by_table"])
	for table, n := range scene.Tally.ByTable["update_count_by_table"] {
		if updatedTo(defs, table) {
			s.ChildrenUpdated += n
		} else {
			s.ChildrenNullified += n
		}
	}
}

// updatedTo reports whether updates of a child table write a value other than NULL. No table of the reference
// schema has both.
func updatedTo(defs []definitions.Definition, table string) bool {
	return slices.ContainsFunc(defs, func(d definitions.Definition) bool {
		return d.Child.String() == table && d.OnDelete == definitions.UpdateColumn
	})
}

// found adds what a scene's check has found.
func (s *Summary) found(at int, found []Finding) {
	scene := &s.scenes[at]
	scene.Found = found
	s.Jobs[scene.Script.Kind] = *scene
	for _, f := range found {
		if f.Name == orphansLeft {
			s.OrphansLeft = &f.Count
		}
	}
}

// Text is the summary for people.
func (s Summary) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nended after %.1f s\n", s.Seconds)
	for _, scene := range s.scenes {
		done := append([]string{words.Grouped(scene.Acted) + " " + scene.Script.Acted}, scene.rows()...)
		fmt.Fprintf(&b, "%s: %s\n", scene.Script.Title, strings.Join(done, ", "))
		if scene.Script.Until != "" && scene.Latency.Max > 0 {
			fmt.Fprintf(&b, "  %s: p50 %.1f ms, p99 %.1f ms\n", scene.Script.Until, scene.Latency.P50, scene.Latency.P99)
		}
		for _, f := range scene.Found {
			fmt.Fprintf(&b, "  %s %s\n", words.Grouped(f.Count), f.Text)
		}
	}
	return b.String()
}
