package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/database"
	"sexton/internal/listen"
	"sexton/internal/placeholder"
	riverjobs "sexton/river_jobs"
)

// placeholderTable is the deletion table of the placeholder users, of which status shows the first few that are kept.
const placeholderTable = "import_placeholder_user_details"

func (a *app) placeholdersCommand() *cobra.Command {
	return group("placeholders", "Look at the placeholder users that imports left behind, or have them tried again",
		"  sexton placeholders list --given-up\n  sexton placeholders retry 4711\n  sexton placeholders retry --all",
		a.placeholdersListCommand(), a.placeholdersRetryCommand())
}

// placeholdersDocument is the output of `sexton placeholders list --json`.
type placeholdersDocument struct {
	Placeholders []placeholder.Placeholder `json:"placeholders"`
	// More tells that the limit left some out.
	More   bool              `json:"more"`
	Counts placeholderCounts `json:"counts"`
}

// placeholderCounts count up to 10,000 each.
type placeholderCounts struct {
	// Pending may still be offered, those put off (Deferred) included; GivenUp will not be.
	Pending  int64 `json:"pending"`
	Deferred int64 `json:"deferred"`
	GivenUp  int64 `json:"given_up"`
	// NextAttemptAt is when the first of those put off can be tried again.
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// Reasons are what keeps most of them.
	Reasons []placeholder.Reason `json:"reasons"`
}

// shownReasons is how many reasons the list counts.
const shownReasons = 20

func (a *app) placeholdersListCommand() *cobra.Command {
	var givenUp bool
	limit := 100
	cmd := a.reports(&cobra.Command{
		Use:   "list",
		Short: "List placeholder users without an owner, and what keeps them",
		Long: `Lists the placeholder users whose import's group is gone, by the ids of their details. Each is due, scheduled (its job
waits or runs), put off until its next attempt, queued among the users to be deleted, given up after its last attempt,
or obsolete (the user is gone or no placeholder any more). A last_deletion_attempt_at of infinity puts one off for ever.
The reason names every table and column that referred to the user at the last attempt, each with one row. The next
attempt is the next one that looks: what a reference keeps is looked at after 1, 2, 4 and 8 retry periods, and at the
last attempt; the attempts between are only counted. Below, they are counted by what keeps them, and all of them, up to
10,000.`,
		Example: "  sexton placeholders list\n  sexton placeholders list --given-up --json",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usageError{fmt.Errorf("--limit %d must be at least 1", limit)}
			}
			state := placeholder.State("")
			if givenUp {
				state = placeholder.GivenUp
			}
			return a.listPlaceholders(cmd.Context(), state, limit)
		}),
	})
	cmd.Flags().BoolVar(&givenUp, "given-up", false, "only placeholder users that will not be tried any more")
	cmd.Flags().IntVar(&limit, "limit", limit, "list `N` at most")
	return cmd
}

func (a *app) listPlaceholders(ctx context.Context, state placeholder.State, limit int) error {
	all, _, err := a.connectForJob(ctx, riverjobs.PlaceholderCleanup)
	if err != nil {
		return err
	}
	defer all.close()
	db := all.jobs()
	rules := riverjobs.PlaceholderRules(all.config)
	found, err := placeholder.List(ctx, db.Pool, db.Names, rules, state, limit+1)
	if err != nil {
		return err
	}
	backlog, err := placeholder.ReadBacklog(ctx, db.Pool, db.Names, rules)
	if err != nil {
		return err
	}
	reasons, err := placeholder.ReadReasons(ctx, db.Pool, db.Names, rules, shownReasons)
	if err != nil {
		return err
	}
	document := placeholdersDocument{
		Placeholders: found[:min(len(found), limit)], More: len(found) > limit,
		Counts: placeholderCounts{backlog.Pending, backlog.Deferred, backlog.GivenUp, backlog.DeferredUntil, reasons},
	}
	switch {
	case a.json:
		return a.printJSON(document)
	case len(found) == 0 && state == placeholder.GivenUp:
		a.printf("no placeholder user is given up\n")
	case len(found) == 0:
		a.printf("no placeholder user is without an owner\n")
	}
	err = a.table(func(w io.Writer) { printPlaceholders(w, document.Placeholders) })
	if document.More {
		a.printf("and more; --limit shows them\n")
	}
	if len(found) > 0 {
		err = errors.Join(err, a.table(func(w io.Writer) { printReasons(w, reasons) }))
		a.printf("%d may still be offered, %d of them put off; %d given up\n", backlog.Pending, backlog.Deferred, backlog.GivenUp)
	}
	return err
}

// printReasons counts placeholders by what keeps them; without any it prints nothing.
func printReasons(w io.Writer, reasons []placeholder.Reason) {
	if len(reasons) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nKEPT BY\tPLACEHOLDERS\tGIVEN UP\tNEXT ATTEMPT")
	for _, r := range reasons {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", r.Reason, r.Placeholders, r.GivenUp, moment(r.NextAttemptAt))
	}
}

// printPlaceholders lists placeholders; without any it prints nothing.
func printPlaceholders(w io.Writer, placeholders []placeholder.Placeholder) {
	if len(placeholders) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "PLACEHOLDER\tSTATE\tATTEMPTS\tLAST ATTEMPT\tNEXT ATTEMPT\tREASON")
	for _, p := range placeholders {
		last, next := age(p.LastAttemptAt), moment(p.NextAttemptAt)
		if p.LastAttemptAt == nil && p.Attempts > 0 {
			last = "unknown" // The row says infinity.
		}
		if p.State == placeholder.PutOff && p.NextAttemptAt == nil {
			next = "never"
		}
		_, _ = fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\t%s\n", p.UserID, p.State, p.Attempts, last, next, text(&p.LastError))
	}
}

// retriedPlaceholder is the output of `sexton placeholders retry --json`.
type retriedPlaceholder struct {
	UserID int64 `json:"user_id"`
	// State is due, or scheduled where a job that waited starts at once.
	State placeholder.State `json:"state"`
}

// retriedPlaceholders is the document of `sexton placeholders retry --all --json`.
type retriedPlaceholders struct {
	Retried int64 `json:"retried"`
}

func (a *app) placeholdersRetryCommand() *cobra.Command {
	var id int64
	var every bool
	cmd := a.reports(&cobra.Command{
		Use:   "retry [ID]",
		Short: "Give a placeholder user its attempts back, and try it at once",
		Long: `Sets the attempts of a placeholder user to 0 and wakes the workers, who look at it again. A job that waits for its time,
or to be tried again after an error, starts at once instead, as the first attempt. ID is the user's, as list shows it.
What kept it at the last attempt is shown until the next one has ended. With --all it is every placeholder that is put
off or given up, 10,000 at a time.`,
		Example: "  sexton placeholders retry 4711\n  sexton placeholders retry --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if every {
				return noArguments(cmd, args)
			}
			return oneUser(&id)(cmd, args)
		},
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if every {
				return a.retryPlaceholders(cmd.Context())
			}
			return a.retryPlaceholder(cmd.Context(), id)
		}),
	})
	cmd.Flags().BoolVar(&every, "all", false, "every placeholder user that is put off or given up")
	return cmd
}

func (a *app) retryPlaceholders(ctx context.Context) error {
	all, _, err := a.connectForJob(ctx, riverjobs.PlaceholderCleanup)
	if err != nil {
		return err
	}
	defer all.close()
	if err := recordRetry(ctx, all, "all placeholders"); err != nil {
		return err
	}
	var retried retriedPlaceholders
	if retried.Retried, err = giveAllAttemptsBack(ctx, all.jobs()); err != nil {
		return err
	}
	a.logger(all.config).InfoContext(ctx, "placeholder users to be tried again", "actor", actor(), "placeholder_users", retried.Retried)
	if a.json {
		return a.printJSON(retried)
	}
	a.printf("%s to be tried now\n", counted(retried.Retried, "placeholder user"))
	return nil
}

func recordRetry(ctx context.Context, all *connections, target string) error {
	return audittrail.Record(ctx, all.jobs(), all.jobs().Pool, audittrail.Entry{Actor: actor(), Action: "retry", Target: target})
}

// giveAllAttemptsBack has all that are put off or given up tried again and wakes the workers.
func giveAllAttemptsBack(ctx context.Context, db database.Database) (retried int64, err error) {
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if retried, err = placeholder.RetryAll(ctx, tx, db.Names); err != nil {
			return err
		}
		return wakePlaceholders(ctx, tx)
	})
	return retried, err
}

// wakePlaceholders wakes the workers: no trigger fires for attempts.
func wakePlaceholders(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, riverjobs.PlaceholderCleanup); err != nil {
		return fmt.Errorf("wake workers: %w", err)
	}
	return nil
}

func (a *app) retryPlaceholder(ctx context.Context, id int64) error {
	all, _, err := a.connectForJob(ctx, riverjobs.PlaceholderCleanup)
	if err != nil {
		return err
	}
	defer all.close()
	if err := recordRetry(ctx, all, fmt.Sprintf("placeholders %d", id)); err != nil {
		return err
	}
	retried := retriedPlaceholder{UserID: id}
	if retried.State, err = giveAttemptsBack(ctx, all.jobs(), id); err != nil {
		return err
	}
	a.logger(all.config).InfoContext(ctx, "placeholder user to be tried again", "actor", actor(), "placeholder_user_id", id)
	if a.json {
		return a.printJSON(retried)
	}
	a.printf("placeholder user %d: %s\n", id, becomes(retried.State))
	return nil
}

// giveAttemptsBack has one placeholder tried again and wakes the workers.
func giveAttemptsBack(ctx context.Context, db database.Database, id int64) (state placeholder.State, err error) {
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if state, err = placeholder.Retry(ctx, tx, db.Names, id); err != nil {
			return err
		}
		return wakePlaceholders(ctx, tx)
	})
	if refused(err) {
		return "", fmt.Errorf("placeholder user %d: %w", id, err)
	}
	return state, err
}

// refused tells that a placeholder cannot be tried again, from what went wrong.
func refused(err error) bool {
	return slices.ContainsFunc([]error{placeholder.ErrUnknown, placeholder.ErrOwned, placeholder.ErrQueued, placeholder.ErrObsolete},
		func(refusal error) bool { return errors.Is(err, refusal) })
}

// becomes words what a placeholder becomes that is tried again.
func becomes(state placeholder.State) string {
	if state == placeholder.Scheduled {
		return "its job starts now"
	}
	return "due now"
}

// readPlaceholders reads the backlog of placeholder users.
func readPlaceholders(ctx context.Context, all *connections, db database.Database) (deletionTable, error) {
	rules := riverjobs.PlaceholderRules(all.config)
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

// saveRules tells the database what the configuration says, so that its view of the backlog agrees with this program's.
func saveRules(ctx context.Context, all *connections) error {
	if !all.config.PlaceholderUsers.Enabled {
		return nil
	}
	return placeholder.SaveRules(ctx, all.jobs().Pool, all.jobs().Names, riverjobs.PlaceholderRules(all.config))
}

// printKept lists placeholders that something keeps, below others.
func printKept(w io.Writer, kept []placeholder.Placeholder) {
	if len(kept) > 0 {
		_, _ = fmt.Fprintln(w)
	}
	printPlaceholders(w, kept)
}

// printGivenUp says how many rows are given up, of tables that have any.
func printGivenUp(w io.Writer, tables []deletionTable) {
	for _, t := range tables {
		if t.GivenUp != nil && *t.GivenUp > 0 {
			_, _ = fmt.Fprintf(w, "\n%s of %s given up; see sexton placeholders list --given-up\n", counted(*t.GivenUp, "row"), t.Table)
		}
	}
}
