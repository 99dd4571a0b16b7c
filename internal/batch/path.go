package batch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/database"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

const (
	pathSQL = `SELECT pg_catalog.set_config('search_path', "sexton".application_path($1), true)`
	// frameSQL sets the path, and sexton.run, by which the triggers of undo recognize a
	// batch. $1 is the path, or NULL if the path is not known. One statement serves both
	// cases, so that a connection has to prepare only one.
	frameSQL = `SELECT pg_catalog.set_config('search_path', coalesce($1::pg_catalog.text, "sexton".application_path($2)), true),
    pg_catalog.set_config('sexton.run', '1', true), ` + policiesSQL
	// readSQL does the same as frameSQL, and makes the transaction use indexes.
	readSQL = `SELECT pg_catalog.set_config('search_path', coalesce($1::pg_catalog.text, "sexton".application_path($2)), true),
    pg_catalog.concat(pg_catalog.set_config('sexton.run', '1', true), ` + IndexScans + `), ` + policiesSQL
	keptSQL = "SELECT pg_catalog.set_config('sexton.undo', 'users', true)"
)

// IndexScans is an SQL expression that makes the rest of a transaction use indexes,
// whatever the statistics are. It must only be used in transactions that only read: the
// statements of the application's triggers would be planned with these settings too.
const IndexScans = "(SELECT pg_catalog.string_agg(pg_catalog.set_config(setting.name, 'off', true), '') FROM pg_catalog.unnest(" +
	"'{enable_seqscan,enable_bitmapscan,enable_sort,enable_hashjoin,enable_mergejoin,jit}'::pg_catalog.text[]) AS setting (name))"

// pathTTL is the time for which a connection uses a path that it has read. The path is
// then read again, since the role's setting may have changed.
const pathTTL = time.Minute

// foundPath is the path of the application's triggers, with the time at which it was
// read.
type foundPath struct {
	path string
	at   time.Time
}

// queuePath queues the statement that sets the search_path. The function begin_batch
// cannot set it: the path of a function with a pinned path is reset when the function
// returns. The path is kept until COMMIT, since deferred constraint triggers run there.
//
// The statement reads the path that a session of the application would have. Each
// connection reads it again every pathTTL and after a failed batch, since a wrong path
// may have caused the error.
func (s *Session) queuePath(pipeline *pgx.Batch, limits Limits) {
	path := s.knownPath()
	switch {
	case limits.Own:
		path = database.OwnPath
	case path == nil:
		delete(s.Conn.PgConn().CustomData(), pathKey)
	}
	frame := frameSQL
	if limits.Reads {
		frame = readSQL
	}
	pipeline.Queue(s.Names.Render(frame), path, s.Names.Path)
}

// knownPath returns the path if the connection has read it within pathTTL, or nil.
func (s *Session) knownPath() any {
	if known, ok := s.Conn.PgConn().CustomData()[pathKey].(foundPath); ok && time.Since(known.at) < pathTTL {
		return known.path
	}
	return nil
}

// UsePath sets the search_path of the application's triggers for the rest of a
// transaction without a fence.
func UsePath(ctx context.Context, tx pgx.Tx, names pgcatalog.Names) error {
	_, err := tx.Exec(ctx, names.Render(pathSQL), names.Path)
	return problem.Doing(err, "set the search_path of triggers")
}

// QueuePath queues the statement of UsePath in a pipeline.
func QueuePath(pipeline *pgx.Batch, names pgcatalog.Names) {
	pipeline.Queue(names.Render(pathSQL), names.Path)
}

// PathHint returns a hint at the configuration key search_path if a function, for example
// of a trigger, did not find a table, function, type or schema. Otherwise it returns "".
func PathHint(err error) string {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	missing := []string{"42P01", "42883", "42704", "3F000"}
	if !ok || !slices.Contains(missing, pgErr.Code) || pgErr.Routine == "exec_stmt_raise" || !inFunction(pgErr) {
		return ""
	}
	return " (databases.<name>.search_path is the search path of triggers)"
}

// Batches begin with row_security = off: a policy on a table that their statements name
// is an error, and no row is mistaken for deleted because a policy hides it. The
// application's triggers must run with the default, on, because they may read tables with
// policies. If the database has policies, EXPLAIN therefore precedes the statements. It
// raises the error, and it locks the tables until COMMIT, so that no policy is added.
const (
	policiesSQL   = "EXISTS (SELECT FROM pg_catalog.pg_policy)"
	policiesKey   = "sexton.batch.policies"
	policiesOnSQL = "SELECT pg_catalog.set_config('row_security', 'on', true)"
)

// explainFirst returns the statements of a batch, preceded by their EXPLAIN statements if
// the database has policies. It returns false if the connection has not queried for
// policies yet.
func (s *Session) explainFirst(limits Limits, statements []Statement) (all []Statement, found bool) {
	if limits.Own || limits.Reads || len(statements) == 0 {
		return statements, true
	}
	policies, found := s.Conn.PgConn().CustomData()[policiesKey].(bool)
	if !policies {
		return statements, found
	}
	for _, one := range statements {
		all = append(all, Statement{SQL: "EXPLAIN " + one.SQL, Args: one.Args})
	}
	all = append(all, Statement{SQL: policiesOnSQL})
	return append(all, statements...), true
}

// afterExplain drops the results of the statements that explainFirst has added. If one of
// them failed, the error gets the index of the caller's statement.
func afterExplain(added int, affected []int64, err error) ([]int64, error) {
	if failed, ok := errors.AsType[*StatementError](err); ok && added > 0 && failed.Index >= added-1 {
		failed.Index -= added
	}
	if err != nil {
		return nil, err
	}
	return affected[added:], nil
}
