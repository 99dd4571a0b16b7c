package jobs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sexton/internal/cli"
	"sexton/internal/groupschedule"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// printReport prints the outcome of one pass. For loose foreign keys the statistics also stand at the top
// level of the JSON object.
func printReport(env *cli.Env, report jobrun.Report) error {
	if env.JSON {
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
		return env.PrintJSON(document)
	}
	env.Printf("%s on %s: %s\n", report.Kind, report.Database, report.Outcome)
	if report.Reason != "" {
		env.Printf("  because    %s\n", report.Reason)
	}
	if report.Kind == riverjobs.AdjournedGroupDeletion {
		return printDecisions(env, report.Stats)
	}
	var stats loosefk.Stats
	if err := json.Unmarshal(report.Stats, &stats); err != nil {
		return fmt.Errorf("decode statistics: %w", err)
	}
	if stats.Connection == "" {
		return nil
	}
	env.Printf("  tombstones %d processed, %d put off\n", stats.Processed, stats.Rescheduled)
	if stats.Revived > 0 {
		env.Printf("  revived    %s: the deleted rows live, so their children stay (sexton tombstones list --revived)\n",
			words.Counted(stats.Revived, "tombstone"))
	}
	env.Printf("  deleted    %s%s\n", words.Counted(stats.DeleteCount, "row"), perTable(stats.DeleteCountByTable))
	env.Printf("  updated    %s%s\n", words.Counted(stats.UpdateCount, "row"), perTable(stats.UpdateCountByTable))
	for _, e := range stats.Errors {
		env.Printf("  error      %s\n", words.ErrorText(e))
	}
	return nil
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

// printDecisions prints what a pass has decided.
func printDecisions(env *cli.Env, encoded json.RawMessage) error {
	var stats groupschedule.Stats
	if err := json.Unmarshal(encoded, &stats); err != nil {
		return fmt.Errorf("decode statistics: %w", err)
	}
	env.Printf("  groups     %d to be destroyed, %d restored, %d put off\n", stats.GroupsEnqueued, stats.GroupsRestored, stats.GroupsFailed)
	for _, e := range stats.Errors {
		env.Printf("  error      %s\n", words.ErrorText(e))
	}
	return nil
}
