package triggers

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/pgcatalog"
)

//go:embed functions parts queries tables
var sqlFiles embed.FS

// sqlText is one of these files. As parts of the program they are never missing.
func sqlText(path string) string {
	text, _ := sqlFiles.ReadFile(path + ".sql")
	return string(text)
}

const (
	// installLock keeps two installers of one database apart: "sextrig" in ASCII.
	installLock int64 = 0x73657874726967

	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// settled makes a transaction independent of the role's and the database's settings: names mean what
// they say, and literals are quoted as pgcatalog.Literal does.
const settled = `
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
SET LOCAL quote_all_identifiers = off;
SET LOCAL check_function_bodies = on;
SET LOCAL client_min_messages = warning;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = 0;
`

// inTx runs do in a transaction with settled settings and commits it.
func inTx(ctx context.Context, conn *pgx.Conn, mode pgx.TxAccessMode, do func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: mode}
	return pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, settled); err != nil {
			return fmt.Errorf("settle transaction: %w", err)
		}
		return do(tx)
	})
}

// write runs do in a transaction that may write. With Record it changes nothing, and the statements go there.
func (c Config) write(ctx context.Context, conn *pgx.Conn, do func(pgx.Tx) error) error {
	if c.Record == nil {
		return inTx(ctx, conn, pgx.ReadWrite, do)
	}
	var statements []string
	err := inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error { return do(recorder{tx, &statements}) })
	if len(statements) > 0 {
		c.Record("BEGIN;\n" + strings.Join(statements, ";\n") + ";\nCOMMIT;\n")
	}
	return err
}

// recorder is a transaction whose statements are written down; its queries are asked.
type recorder struct {
	pgx.Tx

	statements *[]string
}

func (r recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	for i, arg := range args {
		sql = strings.ReplaceAll(sql, fmt.Sprintf("$%d", i+1), pgcatalog.Literal(fmt.Sprint(arg)))
	}
	*r.statements = append(*r.statements, strings.TrimSuffix(strings.TrimSpace(sql), ";"))
	return pgconn.CommandTag{}, nil
}

// locked runs do while no other installer works on the database. The lock belongs to the session, since
// every table has a transaction of its own.
func (c Config) locked(ctx context.Context, conn *pgx.Conn, do func() error) error {
	says := func(holders string) { c.waits("the lock of another installation of triggers", holders) }
	if err := AwaitLock(ctx, conn, installLock, says); err != nil {
		return fmt.Errorf("wait for other installers of triggers: %w", err)
	}
	defer unlock(ctx, conn)
	return do()
}

// lockPause is the time between two tries. A session that waits in the server's queue could not say for whom.
const lockPause = 200 * time.Millisecond

// AwaitLock takes an advisory lock for the session, however long that lasts. Where it is not to be had within a moment, says is told
// which sessions hold it, and told again when others do.
func AwaitLock(ctx context.Context, conn *pgx.Conn, key int64, says func(holders string)) error {
	said := ""
	for try := 0; ; try++ {
		holders, err := tryLock(ctx, conn, key)
		if holders == "" || err != nil {
			return err
		}
		if try > 0 && says != nil && holders != said {
			says(holders)
			said = holders
		}
		if err := wait(ctx, lockPause); err != nil {
			return fmt.Errorf("its lock is held by %s: %w", holders, err)
		}
	}
}

// tryLock returns who holds the lock, or takes it and returns "".
func tryLock(ctx context.Context, conn *pgx.Conn, key int64) (holders string, err error) {
	err = inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlText("queries/lock"), key).Scan(&holders)
	})
	return holders, err
}

// unlock ends the lock also where ctx is over. Where the connection is gone, so is the lock.
func unlock(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if conn.IsClosed() {
		return
	}
	if _, err := conn.Exec(ctx, "SELECT pg_catalog.pg_advisory_unlock($1)", installLock); err != nil {
		// A session that may still hold the lock must not go back to a pool.
		_ = conn.Close(ctx)
	}
}

// execAll runs the statements in order; what says what for.
func execAll(ctx context.Context, tx pgx.Tx, what string, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// relation is a table that triggers are created on or dropped from.
type relation struct {
	OID     uint32
	Schema  string
	Table   string
	Display string
}

// onTable runs do in one transaction under the lock timeout and tries again while others hold the
// table. The waits are short and apart: the application queues behind a waiting CREATE TRIGGER.
func (c Config) onTable(ctx context.Context, conn *pgx.Conn, r relation, exclusive bool, do func(pgx.Tx) error) error {
	var err error
	var holders string
	for attempt := range c.LockAttempts {
		if attempt > 0 {
			if waitErr := wait(ctx, time.Duration(attempt)*200*time.Millisecond); waitErr != nil {
				return fmt.Errorf("lock table %s: %w", r.Display, waitErr)
			}
		}
		err = c.write(ctx, conn, func(tx pgx.Tx) error {
			timeout := fmt.Sprintf("SET LOCAL lock_timeout = %d", max(1, c.LockTimeout.Milliseconds()))
			if _, err := tx.Exec(ctx, timeout); err != nil {
				return err
			}
			return do(tx)
		})
		if state := sqlState(err); state != lockNotAvailable && state != deadlockDetected {
			return err
		}
		holders = cmp.Or(blockers(ctx, conn, r, exclusive), holders)
		c.waits("table "+r.Display, cmp.Or(holders, unknownHolders))
	}
	return &LockError{Table: r.Display, Attempts: c.LockAttempts, Timeout: c.LockTimeout, Holders: cmp.Or(holders, unknownHolders), Err: err}
}

const unknownHolders = "sessions that have just ended"

// waits reports a wait to the caller.
func (c Config) waits(lock, holders string) {
	if c.Waits != nil {
		c.Waits(lock, holders)
	}
}

// blockers names the sessions in the way. It is a second look, so it may find none, and it must not hide
// the error that it explains.
func blockers(ctx context.Context, conn *pgx.Conn, r relation, exclusive bool) string {
	rows, _ := conn.Query(ctx, sqlText("queries/blockers"), r.OID, exclusive)
	holders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return ""
	}
	return strings.Join(holders, ", ")
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// EventTrigger is the name of the event trigger that puts triggers on new partitions.
const EventTrigger = "sexton_new_partitions"

const (
	newPartitionsFunction = "track_new_partitions"
	fixEvent              = "run `sexton triggers install --event-trigger` as a superuser, or `sexton triggers install --event-trigger=false` to do without"
)

// NoSuperuserError says that a role may not create the event trigger.
type NoSuperuserError struct {
	Role string
	// SQL is the statement that a superuser has to run in the database.
	SQL string
}

// Error has the statements for a superuser.
func (e *NoSuperuserError) Error() string {
	return fmt.Sprintf("role %s is no superuser, and only a superuser may create an event trigger; have one run in this database, "+
		"then repeat the command:\n\n%s", quoteIdent(e.Role), e.SQL)
}

// eventLook is a row of event_trigger.sql.
type eventLook struct {
	Wanted, Superuser, HasFunction                          bool
	Body                                                    string
	Settings                                                []string
	Mighty, HasTrigger, RunsIt, Enabled, EventMatches, Loud bool
}

func (c Config) lookAtEvent(ctx context.Context, tx pgx.Tx) (look eventLook, err error) {
	query := strings.NewReplacer(`"loud"`, part("loud")).Replace(sqlText("queries/event_trigger"))
	rows, err := tx.Query(ctx, query, pgcatalog.Schema, newPartitionsFunction, EventTrigger)
	if err == nil {
		look, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[eventLook])
	}
	if err != nil {
		return look, fmt.Errorf("look up event trigger %s: %w", EventTrigger, err)
	}
	return look, nil
}

func (c Config) newPartitionsFunction() function {
	template := strings.NewReplacer(`"loud"`, part("loud")).Replace(sqlText("functions/track_new_partitions"))
	return c.render(newPartitionsFunction, template, "Sexton: puts triggers on new partitions of tracked tables", nil)
}

// compareEvent returns how the event trigger differs from what it should be. Without one that was asked for, nothing does.
func (c Config) compareEvent(look eventLook) []Finding {
	finding := Finding{Trigger: EventTrigger, Kind: Altered, Fix: fixEvent}
	want := c.newPartitionsFunction()
	switch {
	case !look.Wanted:
		return nil
	case !look.HasFunction || !look.HasTrigger:
		finding.Kind, finding.Detail = Missing, "new partitions wait for the worker, and deletions there go unrecorded until then"
	case !look.RunsIt:
		finding.Detail = "the event trigger of this name runs another function"
	case !look.Mighty:
		finding.Detail = "its function is not SECURITY DEFINER, or belongs to no superuser"
	case look.Body != want.body || !slices.Equal(look.Settings, want.settings):
		finding.Detail = "its function is not as installed"
	case !look.EventMatches:
		finding.Detail = "the event trigger is for other commands"
	case !look.Enabled:
		finding.Kind, finding.Detail = Disabled, "the event trigger is disabled, or fires for replicas too"
	case look.Loud:
		finding.Kind, finding.Detail = Disabled, "another event trigger fires also under session_replication_role = replica and runs with its caller's "+
			"rights, so this one does nothing: it would lend that one a superuser's"
		finding.Fix = "make the other one's function SECURITY DEFINER, or the event trigger an ordinary one: ALTER EVENT TRIGGER name ENABLE"
	default:
		return nil
	}
	return []Finding{finding}
}

// eventStatements create the function anew, as a replaced one would keep its owner, and the event trigger with it.
func (c Config) eventStatements() []string {
	f := c.newPartitionsFunction()
	name := pgx.Identifier{pgcatalog.Schema, f.name}.Sanitize()
	return append(c.dropEventStatements(),
		strings.TrimSuffix(strings.TrimSpace(f.create), ";"),
		fmt.Sprintf("REVOKE ALL ON FUNCTION %s() FROM PUBLIC", name),
		fmt.Sprintf("COMMENT ON FUNCTION %s() IS %s", name, pgcatalog.Literal(f.comment)),
		fmt.Sprintf("CREATE EVENT TRIGGER %s ON ddl_command_end WHEN TAG IN ('ALTER TABLE', 'CREATE SCHEMA', 'CREATE TABLE') EXECUTE FUNCTION %s()",
			quoteIdent(EventTrigger), name),
	)
}

// dropEventStatements need the owner of the schema only: the event trigger goes with its function.
func (c Config) dropEventStatements() []string {
	return []string{
		fmt.Sprintf("DROP FUNCTION IF EXISTS %s() CASCADE", pgx.Identifier{pgcatalog.Schema, newPartitionsFunction}.Sanitize()),
	}
}

// refuseEvent says before anything changes that this role cannot create the event trigger.
func (c Config) refuseEvent(look inspection) error {
	if c.EventTrigger == nil || !*c.EventTrigger || look.event.Superuser || look.event.Wanted && len(c.compareEvent(look.event)) == 0 {
		return nil
	}
	return &NoSuperuserError{Role: look.Role, SQL: "BEGIN;\n" + strings.Join(c.eventStatements(), ";\n") + ";\nCOMMIT;\n"}
}

// installEvent creates, renews or drops the event trigger, where that is asked for.
func (c Config) installEvent(ctx context.Context, conn *pgx.Conn, look eventLook, report *Report) error {
	change := Change{Trigger: EventTrigger, Action: Created}
	var statements []string
	switch {
	case c.EventTrigger == nil:
		return nil
	case !*c.EventTrigger:
		if !look.Wanted {
			return nil
		}
		change.Action, statements = Dropped, c.dropEventStatements()
	case look.Wanted && len(c.compareEvent(look)) == 0:
		report.Unchanged++
		return nil
	default:
		if look.HasTrigger {
			change.Action = Replaced
		}
		statements = c.eventStatements()
	}
	err := c.write(ctx, conn, func(tx pgx.Tx) error {
		return execAll(ctx, tx, "change event trigger "+EventTrigger, statements)
	})
	if err == nil {
		report.Triggers = append(report.Triggers, change)
	}
	return err
}
