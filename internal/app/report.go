package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sexton/internal/fault"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	riverjobs "sexton/river_jobs"
)

// printReport prints the outcome of one pass. For loose foreign keys the statistics also stand at the top
// level of the JSON object.
func (a *app) printReport(report jobrun.Report) error {
	if a.json {
		document := map[string]json.RawMessage{}
		if err := json.Unmarshal(report.Stats, &document); err != nil {
			return fmt.Errorf("decode statistics: %w", err)
		}
		encoded, err := json.Marshal(report)
		if err != nil {
			return fmt.Errorf("encode report: %w", err)
		}
		if err := json.Unmarshal(encoded, &document); err != nil {
			return fmt.Errorf("decode report: %w", err)
		}
		return a.printJSON(document)
	}
	a.printf("%s on %s: %s\n", report.Kind, report.Database, report.Outcome)
	if report.Reason != "" {
		a.printf("  because    %s\n", report.Reason)
	}
	if report.Kind == riverjobs.AdjournedGroupDeletion {
		return a.printDecisions(report.Stats)
	}
	var stats loosefk.Stats
	if err := json.Unmarshal(report.Stats, &stats); err != nil {
		return fmt.Errorf("decode statistics: %w", err)
	}
	if stats.Connection == "" {
		return nil
	}
	a.printf("  tombstones %d processed, %d put off\n", stats.Processed, stats.Rescheduled)
	if stats.Revived > 0 {
		a.printf("  revived    %s: the deleted rows live, so their children stay (sexton tombstones list --revived)\n", counted(stats.Revived, "tombstone"))
	}
	a.printf("  deleted    %s%s\n", counted(stats.DeleteCount, "row"), perTable(stats.DeleteCountByTable))
	a.printf("  updated    %s%s\n", counted(stats.UpdateCount, "row"), perTable(stats.UpdateCountByTable))
	for _, e := range stats.Errors {
		a.printf("  error      %s\n", errorText(e))
	}
	return nil
}

// errorText renders how often an error came up in a pass.
func errorText(e fault.Counts) string {
	text := fault.Fault{Table: e.Table, SQLState: e.SQLState, Message: e.Message}.Text()
	return fmt.Sprintf("%s (%s)", text, counted(e.Count, "time"))
}

func perTable(counts map[string]int64) string {
	if len(counts) == 0 {
		return ""
	}
	parts := make([]string, 0, len(counts))
	for _, table := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", table, counts[table]))
	}
	return ": " + strings.Join(parts, ", ")
}
