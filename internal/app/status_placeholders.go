package app

import (
	"context"
	"fmt"
	"io"

	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/placeholder"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// placeholderTable is the deletion table of the placeholder users, of which status shows the first few that are kept.
const placeholderTable = "import_placeholder_user_details"

// PrintPlaceholders lists placeholders; without any it prints nothing.
func PrintPlaceholders(w io.Writer, placeholders []placeholder.Placeholder) {
	if len(placeholders) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "PLACEHOLDER\tSTATE\tATTEMPTS\tLAST ATTEMPT\tNEXT ATTEMPT\tREASON")
	for _, p := range placeholders {
		last, next := words.Age(p.LastAttemptAt), words.Moment(p.NextAttemptAt)
		if p.LastAttemptAt == nil && p.Attempts > 0 {
			last = "unknown" // The row says infinity.
		}
		if p.State == placeholder.PutOff && p.NextAttemptAt == nil {
			next = "never"
		}
		_, _ = fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\t%s\n", p.UserID, p.State, p.Attempts, last, next, words.Cell(&p.LastError))
	}
}

// readPlaceholders reads the backlog of placeholder users.
func readPlaceholders(ctx context.Context, all *installation.Connections, db database.Database) (deletionTable, error) {
	rules := riverjobs.PlaceholderRules(all.Config)
	backlog, err := placeholder.ReadBacklog(ctx, db.Pool, db.Names, rules)
	if err != nil {
		return deletionTable{}, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	kept, err := placeholder.ReadKept(ctx, db.Pool, db.Names, rules, shownUsers)
	if err != nil {
		return deletionTable{}, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	return deletionTable{
		Table: placeholderTable, Database: db.Name, Pending: backlog.Pending, Capped: backlog.Capped,
		OldestAgeSeconds: backlog.OldestAge.Seconds(), Deferred: backlog.Deferred,
		DeferredUntil: backlog.DeferredUntil, DeferredReason: backlog.DeferredReason,
		GivenUp: &backlog.GivenUp, Placeholders: kept,
	}, nil
}

// printKept lists placeholders that something keeps, below others.
func printKept(w io.Writer, kept []placeholder.Placeholder) {
	if len(kept) > 0 {
		_, _ = fmt.Fprintln(w)
	}
	PrintPlaceholders(w, kept)
}

// printGivenUp says how many rows are given up, of tables that have any.
func printGivenUp(w io.Writer, tables []deletionTable) {
	for _, t := range tables {
		if t.GivenUp != nil && *t.GivenUp > 0 {
			_, _ = fmt.Fprintf(w, "\n%s of %s given up; see sexton placeholders list --given-up\n", words.Counted(*t.GivenUp, "row"), t.Table)
		}
	}
}
