package riverjobs

import (
	"cmp"

	"sexton/internal/fault"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/metrics"
)

// counted are counts by metric, and by metric and table, without zeros.
func counted(totals map[string]int64, tables map[string]map[string]int64) (counts []jobrun.Count) {
	add := func(metric, table string, n int64) {
		if n > 0 {
			counts = append(counts, jobrun.Count{Metric: metric, Table: table, N: n})
		}
	}
	for metric, n := range totals {
		add(metric, "", n)
	}
	for metric, byTable := range tables {
		for table, n := range byTable {
			add(metric, table, n)
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

// countsOf are the counts of a pass over tombstones.
func countsOf(stats *loosefk.Stats) []jobrun.Count {
	processed, revived, rescheduled, incremented := map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	for table, parent := range stats.ByParent {
		processed[table], revived[table], rescheduled[table], incremented[table] = parent.Processed, parent.Revived, parent.Rescheduled, parent.Incremented
	}
	return counted(map[string]int64{
		metrics.ConfirmedRecords: stats.Confirmed, metrics.ConfirmedEarly: stats.ConfirmedEarly, metrics.LateChildren: stats.LateChildren,
	}, map[string]map[string]int64{
		metrics.Deletions: stats.DeleteCountByTable, metrics.Updates: stats.UpdateCountByTable, metrics.ProcessedRecords: processed,
		metrics.RevivedRecords: revived, metrics.RescheduledRecords: rescheduled, metrics.IncrementedRecords: incremented,
	})
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
