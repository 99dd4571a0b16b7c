package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/spf13/cobra"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/extdiff"
	"sexton/internal/ghostuser"
	"sexton/internal/heartbeat"
	"sexton/internal/loosefk"
	"sexton/internal/pace"
	"sexton/internal/placeholder"
	riverjobs "sexton/river_jobs"
)

// statusDocument is what `sexton status --json` prints.
type statusDocument struct {
	DeletionTables []deletionTable `json:"deletion_tables"`
	Leases         []heldLease     `json:"leases"`
	Jobs           []jobState      `json:"jobs"`
}

// deletionTable is the backlog of one table in which deletion work waits.
type deletionTable struct {
	Table    string `json:"table"`
	Database string `json:"database"`
	// Pending stops counting at the cap; Capped tells that there are more.
	Pending          int64   `json:"pending"`
	Capped           bool    `json:"capped"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	Deferred         int64   `json:"deferred"`
	// DeferredUntil is when the first of the deferred ones falls due.
	DeferredUntil *time.Time `json:"deferred_until,omitempty"`
	// DeferredReason is why that one was put off.
	DeferredReason string `json:"deferred_reason,omitempty"`
	// Undefined are parents with tombstones that no definition names: nothing will ever work them off.
	Undefined []string `json:"undefined,omitempty"`
	// Confirming counts parents that are cleaned up after and wait for a second look, until every transaction that
	// was open then has ended. They are no backlog.
	Confirming int64 `json:"confirming"`
	// Users are the first that are to be deleted, with what has been done for them.
	Users []ghostuser.Waiting `json:"users,omitempty"`
	// GivenUp counts rows that will not be tried any more; absent for tables whose rows are never given up. It stops at the cap.
	GivenUp *int64 `json:"given_up,omitempty"`
	// Placeholders are the first that something keeps, with what that is.
	Placeholders []placeholder.Placeholder `json:"placeholders,omitempty"`
	// Groups is what there is of groups that are to be deleted.
	Groups *groupBacklog `json:"groups,omitempty"`
	// Diffs is what is to be moved to object storage, with bytes and reasons.
	Diffs *extdiff.Backlog `json:"diffs,omitempty"`
	// Disabled is the configuration key that has to be true for anybody to work this off.
	Disabled string `json:"disabled,omitempty"`
	// Unreachable is why nothing is known of the database.
	Unreachable string `json:"unreachable,omitempty"`
}

type heldLease struct {
	Key        string    `json:"key"`
	Holder     string    `json:"holder"`
	Token      int64     `json:"token"`
	AcquiredAt time.Time `json:"acquired_at"`
	ExpiresAt  time.Time `json:"expires_at"`
}

type jobState struct {
	Kind        string     `json:"kind"`
	Queue       string     `json:"queue"`
	Database    string     `json:"database"`
	Schedule    string     `json:"schedule"`
	Paused      bool       `json:"paused"`
	LastRun     *time.Time `json:"last_run"`
	LastOutcome *string    `json:"last_outcome"`
	LastError   *string    `json:"last_error"`
	// WaitingFor says why nothing happens, be there a pass or not, although something is pending; null where nothing
	// stands in the way.
	WaitingFor *string `json:"waiting_for"`
	// Running is the pass that is at work now; null where none is.
	Running *runningPass `json:"running"`

	job       riverjobs.Job
	obstacles obstacles
	// turnedBack is why the last pass could not do its work then, where that was no failure.
	turnedBack string
	// lastEnded is when the last run ended; nil while it goes on. Runs without any change share a row that began with the first.
	lastEnded *time.Time
	// class is the sort of what it waits for.
	class waitClass
}

// runningPass is a pass that has not ended, with its statistics of half a second ago at most.
type runningPass struct {
	RunID     int64           `json:"run_id"`
	Holder    string          `json:"holder"`
	StartedAt time.Time       `json:"started_at"`
	Stats     json.RawMessage `json:"stats"`
}

// waitingFor is what the pass waits for and of what sort that is, or "" while it works.
func (p *runningPass) waitingFor() (reason string, class waitClass) {
	var stats loosefk.Stats
	if err := json.Unmarshal(p.Stats, &stats); err != nil {
		return "", ""
	}
	class = waitClass(stats.WaitingClass)
	if stats.WaitingFor != "" && class == "" {
		class = waitClass(pace.WaitLock) // Most kinds do not tell the sorts apart.
	}
	return stats.WaitingFor, class
}

// pendingCap bounds the counting of a backlog; ten thousand is a backlog by any measure.
const pendingCap = 10_000

// tombstoneTable is the deletion table of the loose foreign keys.
const tombstoneTable = "loose_foreign_keys_deleted_records"

// ghostQueue is the one of the users, of which status shows the first few.
const (
	ghostQueue = "users_ghost_user_migrations"
	shownUsers = 10
)

func (a *app) statusCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:     "status",
		Short:   "Show backlog, leases, last runs and why something waits",
		Example: "  sexton status\n  sexton status --json | jq '.deletion_tables[].pending'",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			all, err := a.connectReachable(cmd.Context())
			if err != nil {
				return err
			}
			defer all.close()
			if err := all.checkSchemas(cmd.Context()); err != nil {
				return err
			}
			document, err := readStatus(cmd.Context(), all, func(ctx context.Context, db database.Database) ([]string, error) {
				return definedParents(ctx, all, db)
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(document)
			}
			return a.printStatus(document)
		}),
	})
}

// readStatus asks defined for the parents that definitions name, where a database has tombstones at all. It may
// return nil where that cannot be told.
func readStatus(ctx context.Context, all *connections, defined func(context.Context, database.Database) ([]string, error)) (statusDocument, error) {
	document := statusDocument{DeletionTables: []deletionTable{}, Leases: []heldLease{}, Jobs: []jobState{}}
	if all.config.LooseForeignKeys.Enabled {
		for _, db := range all.databases {
			if err := all.down[db.Name]; err != nil {
				document.DeletionTables = append(document.DeletionTables, deletionTable{
					Table: tombstoneTable, Database: db.Name, Unreachable: err.Error(),
				})
				continue
			}
			table, err := readTombstones(ctx, db, defined)
			if err != nil {
				return document, err
			}
			document.DeletionTables = append(document.DeletionTables, table)
		}
	}
	if all.config.GhostUsers.Enabled {
		table, err := readGhostQueue(ctx, all.jobs())
		if err != nil {
			return document, err
		}
		document.DeletionTables = append(document.DeletionTables, table)
	}
	if all.config.PlaceholderUsers.Enabled {
		table, err := readPlaceholders(ctx, all, all.jobs())
		if err != nil {
			return document, err
		}
		document.DeletionTables = append(document.DeletionTables, table)
	}
	if all.config.AdjournedGroups.Enabled {
		table, err := readGroupSchedules(ctx, all.jobs())
		if err != nil {
			return document, err
		}
		document.DeletionTables = append(document.DeletionTables, table)
	}
	if all.config.ExternalDiffs.Enabled {
		tables, err := readDiffs(ctx, all.jobs())
		if err != nil {
			return document, err
		}
		document.DeletionTables = append(document.DeletionTables, tables...)
	} else {
		tables, err := readUnattended(ctx, all.jobs())
		if err != nil {
			return document, err
		}
		document.DeletionTables = append(document.DeletionTables, tables...)
	}
	var err error
	if document.Leases, err = readLeases(ctx, all.jobs()); err != nil {
		return document, err
	}
	if document.Jobs, err = jobStates(ctx, all); err != nil {
		return document, err
	}
	for i := range document.Jobs {
		document.Jobs[i].explain(document)
	}
	return document, nil
}

// readTombstones reads the backlog of the loose foreign keys in one database, a bounded part of it.
func readTombstones(ctx context.Context, db database.Database, defined func(context.Context, database.Database) ([]string, error)) (deletionTable, error) {
	table := deletionTable{Table: tombstoneTable, Database: db.Name}
	parents, err := db.Queries().TombstoneParents(ctx)
	if err != nil {
		return table, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	backlog, err := loosefk.ReadWaiting(ctx, db.Pool, db.Names)
	if err != nil {
		return table, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	confirming, err := db.Queries().SweptKeys(ctx, dbsqlc.SweptKeysParams{Database: db.Name, Cap: pendingCap})
	if err != nil {
		return table, fmt.Errorf("read what is to be confirmed in database %s: %w", db.Name, err)
	}
	if len(parents) > 0 {
		names, err := defined(ctx, db)
		if err != nil {
			return table, err
		}
		if names != nil {
			table.Undefined = slices.DeleteFunc(slices.Clone(parents), func(name string) bool { return slices.Contains(names, name) })
		}
	}
	table.Pending, table.Capped, table.OldestAgeSeconds = backlog.Pending, backlog.Capped, backlog.OldestAge.Seconds()
	table.Deferred, table.DeferredUntil, table.DeferredReason = backlog.Deferred, backlog.DeferredUntil, backlog.DeferredReason
	table.Confirming = min(confirming, pendingCap)
	return table, nil
}

// readLeases lists the leases that are held.
func readLeases(ctx context.Context, jobs database.Database) ([]heldLease, error) {
	rows, err := jobs.Queries().LeasesHeld(ctx)
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	leases := make([]heldLease, len(rows))
	for i, l := range rows {
		leases[i] = heldLease{Key: l.Key, Holder: l.Holder, Token: l.Token, AcquiredAt: l.AcquiredAt, ExpiresAt: l.ExpiresAt}
	}
	return leases, nil
}

// definedParents are the parents that definitions name. Definitions that cannot be read give nil, which is for
// other commands to say.
func definedParents(ctx context.Context, all *connections, db database.Database) ([]string, error) {
	defs, err := loadDefinitions(all.config)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	parents, _, err := loosefk.Resolve(ctx, all.sites(), defs)
	if err != nil {
		return nil, err
	}
	return riverjobs.Recorded(parents[db.Name]), nil
}

// jobStates reads schedule, pause and last run of every job and database.
func jobStates(ctx context.Context, all *connections) ([]jobState, error) {
	runs, alive, err := readRuns(ctx, all)
	if err != nil {
		return nil, err
	}
	states := []jobState{}
	for _, job := range riverjobs.Jobs(all.config) {
		paused, err := pausedQueue(ctx, all, job.Queue)
		if err != nil {
			return nil, err
		}
		for _, name := range job.Databases {
			db := all.database(name)
			state := newJobState(job, db.Name, runs, alive, paused)
			if down := all.down[db.Name]; down != nil {
				state.obstacles.down = down.Error()
			} else if state.obstacles, err = findObstacles(ctx, all, job, db, alive); err != nil {
				return nil, err
			}
			state.obstacles.paused = paused
			states = append(states, state)
		}
	}
	return states, nil
}

// readRuns reads the last run of each kind and database, and the workers that are alive.
func readRuns(ctx context.Context, all *connections) ([]dbsqlc.RunsLastRow, []dbsqlc.ClientsAliveRow, error) {
	runs, err := all.jobs().Queries().RunsLast(ctx, dbsqlc.RunsLastParams{Kinds: all.kinds(), Databases: all.names()})
	if err != nil {
		return nil, nil, fmt.Errorf("read last runs: %w", err)
	}
	alive, err := all.jobs().Queries().ClientsAlive(ctx, heartbeat.DefaultSilence.Seconds())
	if err != nil {
		return nil, nil, fmt.Errorf("read workers: %w", err)
	}
	return runs, alive, nil
}

// newJobState fills in what the last run tells.
func newJobState(job riverjobs.Job, database string, runs []dbsqlc.RunsLastRow, alive []dbsqlc.ClientsAliveRow, paused string) jobState {
	state := jobState{Kind: job.Kind, Queue: job.Queue, Database: database, Schedule: job.Schedule, Paused: paused != "", job: job}
	for _, run := range runs {
		if run.Kind == job.Kind && run.Database == database {
			state.LastRun, state.LastOutcome, state.LastError = &run.StartedAt, run.Outcome, lastError(run)
			state.Running, state.lastEnded = running(run, alive), run.EndedAt
			state.turnedBack = turnedBack(run)
		}
	}
	return state
}

// running is a run that has not ended and whose worker lives.
func running(run dbsqlc.RunsLastRow, alive []dbsqlc.ClientsAliveRow) *runningPass {
	lives := slices.ContainsFunc(alive, func(c dbsqlc.ClientsAliveRow) bool { return c.ClientID == run.Holder })
	if run.EndedAt != nil || !lives {
		return nil
	}
	return &runningPass{RunID: run.ID, Holder: run.Holder, StartedAt: run.StartedAt, Stats: run.Stats}
}

// lastError is why a run failed or, where it went through, the first thing that it met in single tables:
// whoever looks at a growing backlog wants to see that, too.
func lastError(run dbsqlc.RunsLastRow) *string {
	if run.Error != nil {
		return run.Error
	}
	var stats loosefk.Stats
	if err := json.Unmarshal(run.Stats, &stats); err != nil || len(stats.Errors) == 0 {
		return nil
	}
	text := errorText(stats.Errors[0])
	if more := len(stats.Errors) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &text
}

func (a *app) printStatus(document statusDocument) error {
	return a.table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "DELETION TABLE\tDATABASE\tPENDING\tOLDEST\tPUT OFF\tCONFIRMING")
		for _, t := range document.DeletionTables {
			if t.Unreachable != "" {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\t-\n", t.Table, t.Database, "unreachable")
				continue
			}
			pending, oldest := fmt.Sprint(t.Pending), "-"
			if t.Capped {
				pending += "+"
			}
			if t.Pending > 0 {
				oldest = time.Duration(t.OldestAgeSeconds * float64(time.Second)).Round(time.Second).String()
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", t.Table, t.Database, pending, oldest, t.Deferred, t.Confirming)
		}
		printGivenUp(w, document.DeletionTables)
		printUnattended(w, document.DeletionTables)
		for _, t := range document.DeletionTables {
			printUsers(w, t.Users)
			printKept(w, t.Placeholders)
			t.Groups.print(w)
			printDiffs(w, t.Diffs)
		}
		if len(document.Leases) > 0 {
			_, _ = fmt.Fprintln(w, "\nLEASE\tHOLDER\tEXPIRES")
		}
		for _, l := range document.Leases {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", l.Key, l.Holder, l.ExpiresAt.UTC().Format(time.RFC3339))
		}
		_, _ = fmt.Fprintln(w, "\nJOB\tDATABASE\tSCHEDULE\tLAST RUN\tOUTCOME\tWAITS FOR\tERROR")
		for _, j := range document.Jobs {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				j.Kind, j.Database, text(&j.Schedule), age(j.LastRun), text(j.LastOutcome), text(j.WaitingFor), text(j.LastError))
		}
	})
}

// printUsers lists users that are to be deleted.
func printUsers(w io.Writer, users []ghostuser.Waiting) {
	if len(users) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nUSER\tMOVED\tDELETED\tNULLIFIED\tREMAINING\tATTEMPTS\tNOT BEFORE\tERROR")
	for _, u := range users {
		remaining, after := "-", "-"
		if u.Remaining != nil {
			remaining = fmt.Sprint(*u.Remaining)
		}
		if at := u.ConsumeAfter; at.InfinityModifier == pgtype.Infinity || at.InfinityModifier == pgtype.Finite && at.Time.After(time.Now()) {
			after = instant(at)
		}
		_, _ = fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%s\t%d\t%s\t%s\n",
			u.UserID, u.Moved, u.Deleted, u.Nullified, remaining, u.Attempts, after, text(&u.LastError))
	}
}

// age is how long ago something was, for people.
func age(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return time.Since(*at).Round(time.Second).String() + " ago"
}

// text fits a text that may be missing, or have several lines, into one cell of a table.
func text(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return strings.NewReplacer("\n", "; ", "\t", " ").Replace(*s)
}
