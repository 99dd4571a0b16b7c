package app

import (
	"context"
	"fmt"
	"io"
	"time"

	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/extdiff"
	"sexton/internal/problem"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// diffsSwitch is the configuration key that has diffs moved, and the objects of deleted ones removed.
const diffsSwitch = "external_diffs.enabled"

// readUnattended reads what the trigger on diffs goes on queuing although no job removes objects any more; none where nothing waits.
func readUnattended(ctx context.Context, db database.Database) ([]deletionTable, error) {
	queued, err := extdiff.ReadQueued(ctx, db.Pool, db.Names)
	if err != nil {
		return nil, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	if queued.Objects == 0 {
		return nil, nil
	}
	return []deletionTable{{
		Table: removalTable, Database: db.Name, Pending: queued.Objects, Capped: queued.Capped, OldestAgeSeconds: queued.Oldest.Seconds(),
		Disabled: diffsSwitch,
	}}, nil
}

// printUnattended says of tables why no worker works them off.
func printUnattended(w io.Writer, tables []deletionTable) {
	for _, t := range tables {
		if t.Disabled != "" {
			_, _ = fmt.Fprintf(w, "\n%s is not worked off: %s is false\n", t.Table, t.Disabled)
		}
	}
}

// examineUnattended tells of objects that were to be removed and stay, as external diffs are no longer enabled. To most installations
// that is no check at all: they have never been.
func (x *examination) examineUnattended(ctx context.Context, db database.Database) {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	queued, err := extdiff.ReadQueued(bounded, db.Pool, db.Names)
	if err != nil || queued.Objects > 0 {
		x.report.Run(ctx, "unattended_removals", db.Name, func(context.Context) ([]doctor.Finding, error) { return unattended(db, queued), err })
	}
}

func unattended(db database.Database, queued extdiff.Queued) []doctor.Finding {
	if queued.Objects == 0 {
		return nil
	}
	count := words.Counted(queued.Objects, "object")
	if queued.Capped {
		count = "more than " + count
	}
	return []doctor.Finding{{
		Severity: problem.Warning, Object: "table " + removalTable,
		Message: fmt.Sprintf("%s of deleted diffs to be removed, the oldest for %s, but %s is false: no worker removes them, and their trigger goes on queuing",
			count, queued.Oldest.Round(time.Second), diffsSwitch),
		Fix: fmt.Sprintf("set %s: true, and `sexton pause %s` where no more diffs are to be moved; or, where objects may stay for ever: ",
			diffsSwitch, riverjobs.MigrateExternalDiff) +
			db.Names.Render(fmt.Sprintf(`DROP TRIGGER %s ON "public".%s; DELETE FROM "sexton".%s`, extdiff.TriggerName, diffTable, removalTable)),
	}}
}
