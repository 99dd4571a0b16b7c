package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/groupdelete"
	"sexton/internal/groupschedule"
	"sexton/internal/words"
)

// groupSchedules is the deletion table of groups, of which status shows the first few.
const (
	groupSchedules = "group_deletion_schedules"
	shownGroups    = 10
)

// groupBacklog is status's account of groups to be deleted, beside that of every deletion table.
type groupBacklog struct {
	groupschedule.Backlog

	// First are the groups that are being destroyed, then the others as they fall due.
	First []groupschedule.Group `json:"first"`
}

// readGroupSchedules reads the backlog of groups. Those whose period is not over are no backlog.
func readGroupSchedules(ctx context.Context, db database.Database) (deletionTable, error) {
	backlog, err := groupschedule.ReadBacklog(ctx, db.Pool, db.Names)
	if err != nil {
		return deletionTable{}, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	first, err := groupschedule.ReadGroups(ctx, db.Pool, db.Names, shownGroups)
	if err != nil {
		return deletionTable{}, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	return deletionTable{
		Table: groupSchedules, Database: db.Name, Pending: backlog.Due, Capped: backlog.Capped,
		OldestAgeSeconds: backlog.OldestAge.Seconds(), Deferred: backlog.Failed, Groups: &groupBacklog{Backlog: backlog, First: first},
	}, nil
}

// print says what the counts of the table leave out, and lists the first groups.
func (b *groupBacklog) print(w io.Writer) {
	if b == nil || len(b.First) == 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "\nGroups to be deleted: %d in their period, %d due, %d put off, %d being destroyed (%d stuck), %d with a mark and no schedule\n",
		b.Adjourned, b.Due, b.Failed, b.Destroying, b.Stuck, b.Unscheduled)
	PrintGroups(w, b.First)
}

// PrintGroups prints a table of groups.
func PrintGroups(w io.Writer, groups []groupschedule.Group) {
	_, _ = fmt.Fprintln(w, "GROUP\tPATH\tSTATE\tUSER\tMARKED\tDUE\tBEGINS\tDONE\tATTEMPTS\tERROR")
	for _, g := range groups {
		user, begins, done := "-", "-", "-"
		if g.UserID != nil {
			user = fmt.Sprint(*g.UserID)
		}
		switch {
		case g.BegunAt != nil:
			begins, done = g.BegunAt.UTC().Format(time.RFC3339), fmt.Sprint(g.Done)
			if g.Total != nil {
				done += fmt.Sprintf(" of %d", *g.Total)
			}
			if g.ETASeconds != nil && g.State == "destroying" {
				done += fmt.Sprintf(", %s left", time.Duration(*g.ETASeconds*float64(time.Second)).Round(time.Second))
			}
		case g.DestroyAt != nil:
			begins = g.DestroyAt.UTC().Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", g.GroupID, words.Cell(&g.Path), strings.ReplaceAll(g.State, "_", " "), user,
			words.Cell(g.MarkedOn), words.Cell(g.DueOn), begins, done, g.Attempts, words.Cell(&g.LastError))
	}
}

// PrintDecisions prints what a pass has decided.
func PrintDecisions(env *cli.Env, encoded json.RawMessage) error {
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

// examineGroups looks at what keeps groups from being deleted, or has them forgotten.
func (x *examination) examineGroups(ctx context.Context) {
	for _, db := range x.Databases {
		if db.Name != x.Config.Jobs.Database {
			continue
		}
		x.report.Run(ctx, "adjourned_groups", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
			found, err := groupschedule.Examine(ctx, db.Pool, db.Names)
			if err != nil {
				return nil, err
			}
			// What hangs below groups, and the indexes without which it takes long to find.
			_, planned, err := groupdelete.Resolve(ctx, db.Pool, db.Names, x.Config.GhostUsers.Enabled)
			return asFindings(append(found, planned...)), err
		})
	}
	if !x.reached(x.Config.Jobs.Database) {
		x.report.Skip(x.Config.Jobs.Database, "adjourned_groups")
	}
}
