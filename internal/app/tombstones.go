package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	riverjobs "sexton/river_jobs"
)

func (a *app) tombstonesCommand() *cobra.Command {
	return group("tombstones", "Look at the waiting tombstones, or have failed ones tried again",
		"  sexton tombstones list --failed\n  sexton tombstones retry --all",
		a.tombstonesListCommand(), a.tombstonesRetryCommand(),
		a.tombstonesMoveCommand(), a.tombstonesDropCommand(), a.tombstonesClearCommand())
}

// scope is which tombstones or definitions a command is about.
type scope struct {
	database string
	table    string
}

func (s *scope) flags(cmd *cobra.Command, table string) {
	cmd.Flags().StringVar(&s.database, "database", "", "`NAME` of one configured database (default: all)")
	cmd.Flags().StringVar(&s.table, "table", "", table)
}

// name reads --table as definitions do.
func (s *scope) name() (definitions.Name, error) {
	if s.table == "" {
		return definitions.Name{}, nil
	}
	name, err := definitions.ParseName(s.table)
	if err != nil {
		return name, usageError{fmt.Errorf("--table %s %w", s.table, err)}
	}
	return name, nil
}

// chosen are the databases that a command is about. All of them have to be there.
func (s *scope) chosen(all *connections) ([]database.Database, error) {
	chosen := all.databases
	if s.database != "" {
		name, err := chooseDatabase(all.config, s.database, "")
		if err != nil {
			return nil, err
		}
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(db database.Database) bool { return db.Name != name })
	}
	for _, db := range chosen {
		if err := all.down[db.Name]; err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// in is the name as tombstones of a database have it, or "" where --table was not given.
func (s *scope) in(ctx context.Context, db database.Database) (string, error) {
	name, err := s.name()
	if err != nil || name == (definitions.Name{}) {
		return "", err
	}
	var recorded string
	const sql = "SELECT pg_catalog.format('%I.%I', $1::pg_catalog.text, $2::pg_catalog.text)"
	if err := db.Pool.QueryRow(ctx, sql, cmp.Or(name.Schema, db.Names.Tracked), name.Table).Scan(&recorded); err != nil {
		return "", fmt.Errorf("quote name of table %s: %w", name, err)
	}
	return recorded, nil
}

// tombstonesOf is the queue of one database.
func tombstonesOf(all *connections, db database.Database) loosefk.Tombstones {
	return loosefk.Tombstones{DB: db.Pool, Names: db.Names, Bounds: boundsOf(all), Wake: wakeLooseForeignKeys}
}

func boundsOf(all *connections) loosefk.Bounds {
	settings := all.config.Jobs
	return loosefk.Bounds{StatementTimeout: settings.StatementTimeout, LockTimeout: settings.LockTimeout}
}

// wakeLooseForeignKeys sends what the trigger on inserted tombstones sends. An update fires none, and a worker that
// is awake already takes the notification for one more look.
func wakeLooseForeignKeys(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, riverjobs.LooseForeignKeysCleanupArgs{}.Kind()); err != nil {
		return fmt.Errorf("wake workers: %w", err)
	}
	return nil
}

// listedTombstone is one entry of `sexton tombstones list --json`.
type listedTombstone struct {
	Database                 string `json:"database"`
	loosefk.PendingTombstone        //nolint:embeddedstructfieldcheck // the order is that of the document
}

// tombstonesDocument is the output of `sexton tombstones list --json`.
type tombstonesDocument struct {
	Tombstones []listedTombstone `json:"tombstones"`
	// More counts the tombstones that the limit left out; where MoreCapped is true there are at least as many.
	More       int64 `json:"more"`
	MoreCapped bool  `json:"more_capped"`
}

func (a *app) tombstonesListCommand() *cobra.Command {
	var s scope
	var failedOnly, revived bool
	limit := 100
	cmd := a.reports(&cobra.Command{
		Use:   "list",
		Short: "List waiting tombstones, failed ones first",
		Long: `Lists tombstones, one per deleted row whose children are still to be cleaned up: first the failed ones, with their
attempts and the last reason, then the others, by parent and in the order in which they are worked off. From its
third failure on a tombstone is put off, by 5 minutes at first and an hour at most; "sexton tombstones retry" has it
tried at once. After a retry the last reason stays until the next attempt.

With --revived it lists those whose row lives under its key, so that its children stay: the newest 10,000 of the last 7
days. "sexton tombstones clear" cleans up after one all the same.`,
		Example: "  sexton tombstones list --failed\n  sexton tombstones list --table projects --limit 10 --json",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usageError{fmt.Errorf("--limit %d must be at least 1", limit)}
			}
			if _, err := s.name(); err != nil {
				return err
			}
			all, _, err := a.connectForJob(cmd.Context(), riverjobs.LooseForeignKeysCleanupArgs{}.Kind())
			if err != nil {
				return err
			}
			defer all.close()
			databases, err := s.chosen(all)
			if err != nil {
				return err
			}
			if revived {
				return a.listRevived(cmd.Context(), all, databases, s, limit)
			}
			document := tombstonesDocument{Tombstones: []listedTombstone{}}
			for _, db := range databases {
				parent, err := s.in(cmd.Context(), db)
				if err != nil {
					return err
				}
				list, err := tombstonesOf(all, db).List(cmd.Context(), loosefk.ListOptions{Parent: parent, FailedOnly: failedOnly, Limit: limit})
				if err != nil {
					return fmt.Errorf("database %s: %w", db.Name, err)
				}
				document.add(db.Name, list, limit)
			}
			return a.printTombstones(document, failedOnly)
		}),
	})
	s.flags(cmd, "`PARENT` whose tombstones to list, named as in definitions")
	cmd.Flags().BoolVar(&failedOnly, "failed", false, "only failed tombstones")
	cmd.Flags().BoolVar(&revived, "revived", false, "tombstones whose row lives under its key")
	exclusive(cmd, "failed", "revived")
	cmd.Flags().IntVar(&limit, "limit", limit, "list `N` at most")
	return cmd
}

// add appends one database's list, up to the limit.
func (d *tombstonesDocument) add(name string, list loosefk.TombstoneList, limit int) {
	fit := min(len(list.Tombstones), limit-len(d.Tombstones))
	for _, one := range list.Tombstones[:fit] {
		d.Tombstones = append(d.Tombstones, listedTombstone{Database: name, PendingTombstone: one})
	}
	d.More += list.More + int64(len(list.Tombstones)-fit)
	d.MoreCapped = d.MoreCapped || list.Capped
}

func (a *app) printTombstones(document tombstonesDocument, failedOnly bool) error {
	if a.json {
		return a.printJSON(document)
	}
	noun := "tombstone"
	if failedOnly {
		noun = "failed tombstone"
	}
	if len(document.Tombstones) == 0 {
		a.printf("no %s waits\n", noun)
		return nil
	}
	err := a.table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "ID\tDATABASE\tTABLE\tKEY\tAGE\tATTEMPTS\tDUE\tLAST ERROR")
		for _, t := range document.Tombstones {
			due := "now"
			if t.Deferred {
				due = instant(t.ConsumeAfter)
			}
			_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", t.ID, t.Database, t.Table, text(&t.Key),
				time.Duration(t.AgeSeconds*float64(time.Second)).Round(time.Second), t.Attempts, due, text(t.LastError))
		}
	})
	if document.More > 0 {
		least := ""
		if document.MoreCapped {
			least = "at least "
		}
		a.printf("and %s%s more\n", least, counted(document.More, noun))
	}
	return err
}

// instant renders a time that may be infinite.
func instant(at pgtype.Timestamptz) string {
	if at.InfinityModifier != pgtype.Finite {
		return at.InfinityModifier.String()
	}
	return at.Time.UTC().Format(time.RFC3339)
}

// retryReport is one database's entry of `sexton tombstones retry --json`.
type retryReport struct {
	Database        string `json:"database"`
	loosefk.Retried        //nolint:embeddedstructfieldcheck // the order is that of the document
}

func (a *app) tombstonesRetryCommand() *cobra.Command {
	var s scope
	var ids []int64
	var everything bool
	cmd := a.reports(&cobra.Command{
		Use:   "retry",
		Short: "Have failed tombstones tried again now",
		Long: `Makes failed tombstones due at once, with their attempts set to 0, and wakes the workers. Tombstones that did not fail
stay as they are, so that doing it twice changes nothing more. A tombstone that a worker has in hand is left alone and
counted as busy. The reason of the last failure stays until the next attempt.`,
		Example: "  sexton tombstones retry --id 4711 --id 4712\n  sexton tombstones retry --table projects\n  sexton tombstones retry --all",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			given := 0
			for _, one := range []bool{len(ids) > 0, s.table != "", everything} {
				if one {
					given++
				}
			}
			if given != 1 {
				return usageError{fmt.Errorf("%s needs one of --id, --table and --all", cmd.CommandPath())}
			}
			return a.tombstonesRetry(cmd.Context(), s, ids)
		}),
	})
	s.flags(cmd, "`PARENT` whose failed tombstones to try again, named as in definitions")
	cmd.Flags().Int64SliceVar(&ids, "id", nil, "`ID` of a tombstone, as list shows it; may be given several times")
	cmd.Flags().BoolVar(&everything, "all", false, "all failed tombstones")
	return cmd
}

func (a *app) tombstonesRetry(ctx context.Context, s scope, ids []int64) error {
	if _, err := s.name(); err != nil {
		return err
	}
	all, _, err := a.connectForJob(ctx, riverjobs.LooseForeignKeysCleanupArgs{}.Kind())
	if err != nil {
		return err
	}
	defer all.close()
	databases, err := s.chosen(all)
	if err != nil {
		return err
	}
	if len(ids) > 0 && len(databases) > 1 {
		return usageError{errors.New("--id needs --database: each database numbers its own tombstones")}
	}
	entry := audittrail.Entry{Actor: actor(), Action: "retry", Target: s.retried(ids)}
	if err := audittrail.Record(ctx, all.jobs(), all.jobs().Pool, entry); err != nil {
		return err
	}
	log := a.logger(all.config)
	reports := []retryReport{}
	var unknown []int64
	for _, db := range databases {
		parent, err := s.in(ctx, db)
		if err != nil {
			return err
		}
		result, err := tombstonesOf(all, db).Retry(ctx, loosefk.RetryOptions{Parent: parent, IDs: ids})
		// Also beside an error: what has been changed has been changed.
		log.InfoContext(ctx, "tombstones retried", "database", db.Name, "actor", actor(), "table", parent, "ids", ids,
			"retried", result.Retried, "busy", result.Busy)
		if err != nil {
			return fmt.Errorf("database %s: %w", db.Name, err)
		}
		unknown = append(unknown, result.Unknown...)
		reports = append(reports, retryReport{Database: db.Name, Retried: result})
	}
	if err := a.printRetried(reports); err != nil {
		return err
	}
	if len(unknown) > 0 {
		return fmt.Errorf("no waiting tombstone has the id %s", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(unknown)), ", "), "[]"))
	}
	return nil
}

// retried says what a retry is for, as the page does.
func (s *scope) retried(ids []int64) string {
	text := "all tombstones"
	switch {
	case len(ids) > 0:
		text = "tombstones " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ", "), "[]")
	case s.table != "":
		text = "tombstones of parent " + s.table
	}
	if s.database != "" {
		text += " of " + s.database
	}
	return text
}

func (a *app) printRetried(reports []retryReport) error {
	if a.json {
		return a.printJSON(reports)
	}
	for _, r := range reports {
		a.printf("%s: %s due now", r.Database, counted(r.Retried.Retried, "failed tombstone"))
		if r.Due > 0 {
			a.printf(", %d due already", r.Due)
		}
		if r.Busy > 0 {
			a.printf(", %d busy: a worker has them in hand", r.Busy)
		}
		a.printf("\n")
	}
	return nil
}
