package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/triggers"
)

// schema is the schema of Sexton's own objects. SQL files contain it literally.
const schema = "sexton"

// Database is one configured database and its components.
type Database struct {
	// Name is the name in the configuration.
	Name string
	// Conn holds the settings of direct connections. A transaction pooler would lose the
	// session's advisory lock.
	Conn *pgx.ConnConfig
	// Sessions, if set, is a pool of direct connections. Calls that change nothing use
	// the pool instead of a new connection.
	Sessions *pgxpool.Pool
	// TrackedSchema is the schema of tombstones and the other deletion tables.
	TrackedSchema string
	// Jobs marks the jobs database, which also has the leases, the runs, the function
	// enqueue and River's tables.
	Jobs bool
	// Components holds the optional components of this database. All except
	// LooseForeignKeys belong only to the jobs database, and need the application's
	// tables in the tracked schema. PlaceholderUsers needs GhostUsers.
	Components []string
	// Users describes the table of users for GhostUsers.
	Users Users
	// Groups describes the table of groups for AdjournedGroups.
	Groups Groups
	// Owner is the role that owns the objects. If it is empty, DefaultOwner applies.
	Owner string
	// Kinds holds the job kinds that enqueue accepts, for the jobs database.
	Kinds []Kind
}

// Migration is one numbered migration of a component.
type Migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
}

// ComponentReport describes the changes to one component.
type ComponentReport struct {
	Component string `json:"component"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	// Applied holds the migrations that Up ran or Down reverted, in order.
	Applied []Migration `json:"applied"`
}

// Report describes the changes of Up or Down in one database.
type Report struct {
	Database   string            `json:"database"`
	Components []ComponentReport `json:"components"`
	// Owner describes the owner of the objects after Up. It is nil for Down.
	Owner *Ownership `json:"owner,omitempty"`
	// Triggers holds the triggers that Down removed. It is nil for Up.
	Triggers *triggers.Report `json:"triggers,omitempty"`
}

// Up installs missing objects, migrates the enabled components to this program's newest
// version and makes enqueue accept exactly the configured kinds. Up is idempotent and may
// run on several machines at the same time.
//
// Up changes nothing if it returns one of these errors:
//
//   - A *SchemaError: the schema is newer than this program, or a deletion table is in
//     another schema than configured.
//   - A *PrivilegeError: a privilege is missing, such as membership in the owner's role.
//   - A problem.List: tables and rules of the application do not fit the components.
//
// River's tables are migrated last, in transactions of their own. Everything else is one
// transaction.
func Up(ctx context.Context, log *slog.Logger, db Database) (Report, error) {
	report := Report{Database: db.Name, Components: []ComponentReport{}}
	err := withSession(ctx, log, db, func(s *session) error {
		snap, err := db.readSnapshot(ctx, s.pool)
		if err != nil {
			return err
		}
		if err := db.check(snap); err != nil {
			return err
		}
		if found := pgcatalog.Untested(snap.server); found.Message != "" {
			log.WarnContext(ctx, "server_untested", slog.String("database", db.Name),
				slog.String("warning", found.String()))
		}
		if err := s.makeOwner(ctx, snap.role); err != nil {
			return err
		}
		return s.up(ctx, snap, &report)
	})
	return report, problem.Doing(err, "migrate database %s up", db.Name)
}

func (s *session) up(ctx context.Context, snap snapshot, report *Report) error {
	own := Ownership{Role: s.db.owner(), Todo: []string{}}
	err := s.change(ctx, func(tx pgx.Tx) error {
		if err := execAll(ctx, tx, s.db.plan(snap)); err != nil {
			return err
		}
		if err := errors.Join(s.writeKinds(ctx, tx), s.writeApplicationTables(ctx, tx)); err != nil {
			return err
		}
		if err := s.handOver(ctx, tx, &own); err != nil {
			return err
		}
		return s.grantOwner(ctx, tx, &own)
	})
	if err != nil {
		return s.db.explain(snap, err, asOwner)
	}
	report.Owner = &own
	for _, c := range s.db.components() {
		applied := s.db.due(snap, c)
		if c.name == River {
			if applied, err = s.upRiver(ctx, snap); err != nil {
				return s.db.explain(snap, fmt.Errorf("migrate %s: %w", c.name, err), asOwner)
			}
		}
		s.logApplied(ctx, c, "up", applied)
		to := snap.versions[c.name]
		if len(applied) > 0 {
			to = applied[len(applied)-1].Version
		}
		report.Components = append(report.Components, ComponentReport{
			Component: c.name, From: snap.versions[c.name],
			To: to, Applied: applied,
		})
	}
	if s.db.Jobs {
		return s.change(ctx, func(tx pgx.Tx) error { return s.handOver(ctx, tx, &own) })
	}
	return nil
}

// plan returns the SQL statements of Up in order, without River's migrations and without
// the rows that depend on the configuration. It contains the migrations of a component
// only if the version is older than this program's or a table is missing.
func (db Database) plan(snap snapshot) (statements []string) {
	if !snap.hasSchema {
		statements = append(statements, fmt.Sprintf("CREATE SCHEMA %s AUTHORIZATION %s", schema, quote(db.owner())))
	}
	for _, c := range db.components() {
		if c.name == River {
			continue
		}
		for _, m := range db.due(snap, c) {
			statements = append(statements, fmt.Sprintf("-- migration %d of %s\n%s", m.Version, c.name,
				db.replacer(snap, c.name).Replace(c.text(m))))
		}
	}
	// The bodies of functions may use functions that are created later, so bodies are not
	// checked.
	statements = append(statements, "SET LOCAL check_function_bodies = off")
	for _, c := range db.components() {
		replacer := db.replacer(snap, c.name)
		if keys := map[string]string{GhostUsers: "user_keys", AdjournedGroups: "group_keys"}[c.name]; keys != "" {
			statements = append(statements, replacer.Replace(sqlText(keys)))
		}
		if c.name == AdjournedGroups && !db.gitlab(c.name) {
			statements = append(statements, replacer.Replace(sqlText("group_views")))
		}
		for _, f := range c.functions(db, snap) {
			statements = append(statements, f.text)
		}
		if rows := replacer.Replace(c.rows()); rows != "" {
			statements = append(statements, rows)
		}
	}
	if comment := db.versionComment(snap); comment != snap.comment {
		statements = append(statements, fmt.Sprintf("COMMENT ON SCHEMA %s IS %s", schema, pgcatalog.Literal(comment)))
	}
	return statements
}

// versionComment returns the schema comment with the versions of all components after Up.
// Components that are not enabled keep their versions.
func (db Database) versionComment(snap snapshot) string {
	versions := []string{}
	enabled := db.components()
	for _, c := range allComponents() {
		version := snap.versions[c.name]
		if slices.ContainsFunc(enabled, func(e component) bool { return e.name == c.name }) {
			version = latest(c)
		}
		if c.name != River && version > 0 {
			versions = append(versions, fmt.Sprintf("%s %d", c.name, version))
		}
	}
	return "Sexton: " + strings.Join(versions, ", ")
}

func execAll(ctx context.Context, tx pgx.Tx, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			line, _, _ := strings.Cut(statement, "\n")
			return fmt.Errorf("run %q: %w", line, err)
		}
	}
	return nil
}

// These constants limit the waits for locks. While a statement waits for a table's lock,
// the application's later writes wait, too. So each wait is short, and the writers
// continue during the pauses.
const (
	lockAttempts = 5
	lockPause    = time.Second
	// holdersEvery is the time between two queries for the sessions that hold a lock.
	holdersEvery = 300 * time.Millisecond
)

// change runs do in a transaction. It retries if a lock was not available within the
// session's lock_timeout.
func (s *session) change(ctx context.Context, do func(tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		holders, err := s.attempt(ctx, do)
		if state := pgcatalog.SQLState(err); state != "55P03" && state != "40P01" {
			return err
		}
		if attempt == lockAttempts {
			return fmt.Errorf("no lock after %d attempts, because it is held by %s: %w", attempt, holders, err)
		}
		waits(ctx, s.log.With(slog.String("database", s.db.Name)))("a table", holders)
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // the caller's error
		}
	}
}

// attempt runs do in a transaction, and returns the lock holders that the transaction
// waited for last.
func (s *session) attempt(ctx context.Context, do func(tx pgx.Tx) error) (holders string, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan string)
	go func() { watched <- s.lockHolders(watching, conn.Conn().PgConn().PID()) }()
	err = pgx.BeginFunc(ctx, conn, do)
	stop()
	return <-watched, err
}

// lockHolders waits until ctx ends and returns the lock holders that a session waited for
// last.
func (s *session) lockHolders(ctx context.Context, pid uint32) string {
	last := "unknown sessions"
	ticker := time.NewTicker(holdersEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return last
		case <-ticker.C:
			holders, err := list(ctx, s.pool, "lock holders", pgx.RowTo[string], sqlText("lock_holders"), pid)
			if err == nil && holders[0] != "" {
				last = holders[0]
			}
		}
	}
}

func (s *session) logApplied(ctx context.Context, c component, direction string, applied []Migration) {
	for _, m := range applied {
		s.log.InfoContext(ctx, "migration_applied",
			slog.String("database", s.db.Name), slog.String("component", c.name), slog.String("direction", direction),
			slog.Int64("version", m.Version), slog.String("name", m.Name))
	}
}
