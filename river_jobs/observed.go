package riverjobs

import (
	"cmp"
	"maps"
	"slices"

	"sexton/internal/fault"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/metrics"
)

// counted are counts by metric, without zeros.
func counted(byMetric map[string]int64) (counts []jobrun.Count) {
	for metric, n := range byMetric {
		if n > 0 {
			counts = append(counts, jobrun.Count{Metric: metric, N: n})
		}
	}
	return counts
}

// countedBy are counts by metric and table.
func countedBy(byMetric map[string]map[string]int64) (counts []jobrun.Count) {
	for metric, byTable := range byMetric {
		for table, n := range byTable {
			counts = append(counts, jobrun.Count{Metric: metric, Table: table, N: n})
		}
	}
	return counts
}

// cutShort notes why a pass ended before everything was done.
func cutShort(result *jobrun.Result, overLimit, interrupted bool, left string) {
	switch {
	case overLimit:
		result.Outcome, result.Reason = jobrun.OverLimit, left
	case interrupted:
		result.Outcome, result.Reason = jobrun.OverLimit, "asked to stop before everything was done"
	}
}

// because adds to a reason what was in the way, if anything was.
func because(reason, held string) string {
	if held == "" {
		return reason
	}
	return reason + "; held up by " + held
}

// countsOf are a pass's statistics by metric, in the order of the tables' names.
func countsOf(stats *loosefk.Stats) []jobrun.Count {
	var counts []jobrun.Count
	add := func(metric, table string, n int64) {
		if n > 0 {
			counts = append(counts, jobrun.Count{Metric: metric, Table: table, N: n})
		}
	}
	for _, table := range slices.Sorted(maps.Keys(stats.DeleteCountByTable)) {
		add(metrics.Deletions, table, stats.DeleteCountByTable[table])
	}
	for _, table := range slices.Sorted(maps.Keys(stats.UpdateCountByTable)) {
		add(metrics.Updates, table, stats.UpdateCountByTable[table])
	}
	for _, table := range slices.Sorted(maps.Keys(stats.ByParent)) {
		parent := stats.ByParent[table]
		add(metrics.ProcessedRecords, table, parent.Processed)
		add(metrics.RevivedRecords, table, parent.Revived)
		add(metrics.RescheduledRecords, table, parent.Rescheduled)
		add(metrics.IncrementedRecords, table, parent.Incremented)
	}
	add(metrics.ConfirmedRecords, "", stats.Confirmed)
	add(metrics.ConfirmedEarly, "", stats.ConfirmedEarly)
	add(metrics.LateChildren, "", stats.LateChildren)
	return counts
}

// Figures are the fields of a kind's statistics that its batches count, each with its metric, if it has one.
func Figures(kind string) map[string]string {
	switch kind {
	case LooseForeignKeys:
		return map[string]string{
			"delete_count_by_table": metrics.Deletions, "update_count_by_table": metrics.Updates, "processed": metrics.ProcessedRecords,
		}
	case GhostUsers:
		return map[string]string{
			"moved": metrics.GhostMoved, "deleted": metrics.GhostDeleted, "nullified": metrics.GhostNullified,
			"users_processed": metrics.GhostUsersDestroyed,
		}
	case GroupDestroy:
		return map[string]string{
			"deleted": metrics.GroupDeleted, "groups": metrics.GroupsDestroyed, "projects": metrics.ProjectsDestroyed, "nullified": "", "bots": "",
		}
	default:
		return nil
	}
}

// heldUp returns why a run that has left work undone got nothing done, or "": done counts its changes, the errors are the ones that it
// met, and reason names the last thing that it waited for.
func heldUp(done int64, left bool, reason string, met []fault.Counts) string {
	switch {
	case done > 0 || !left && len(met) == 0:
		return ""
	case reason == "" && len(met) > 0:
		return fault.Fault{Table: met[0].Table, SQLState: met[0].SQLState, Message: met[0].Message}.Text()
	}
	return cmp.Or(reason, "its time was over before anything was done")
}

// total sums rows by table.
func total(counts ...map[string]int64) (sum int64) {
	for _, byTable := range counts {
		for _, n := range byTable {
			sum += n
		}
	}
	return sum
}
