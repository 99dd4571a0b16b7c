package exampleapp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/problem"
	sqlfiles "sexton/sql"
)

// Schema returns the SQL of the application's tables. It consists of several statements
// for an empty database, with unqualified names.
func Schema() string { return file("schema.sql") }

// Definitions returns the application's loose foreign keys as a YAML document in GitLab's
// format.
func Definitions() string { return file("loose_foreign_keys.yml") }

func file(name string) string {
	// The error is ignored, because the files are embedded and a test reads all of them.
	text, _ := sqlfiles.Reference.ReadFile("reference/" + name)
	return string(text)
}

const closeTimeout = 5 * time.Second

// Load fills an empty schema with about rows rows in total, from 1,000 to some tens of
// millions. It returns the exact number of inserted rows.
//
// Two loads with the same number of rows on the same day are equal on any machine. Dates
// count back from the day in UTC, and all other values depend on the rows' numbers. The
// pool's search_path selects the tables. After each chunk of at most 10,000 rows, Load
// calls progress, if it is not nil, with the number of loaded rows and the total. If ctx
// ends, Load returns its error and keeps the loaded rows.
func Load(ctx context.Context, pool *pgxpool.Pool, rows int, progress func(done, total int64)) (int64, error) {
	return load(ctx, pool, rows, time.Now().UTC().Truncate(24*time.Hour), progress)
}

// load loads the data as of a given day.
//
// One session inserts all rows. A second session gains little on two processors, because
// two sessions wait for each other at the end of each index. The processors of a demo
// also have other work.
func load(ctx context.Context, pool *pgxpool.Pool, rows int, today time.Time,
	progress func(done, total int64),
) (_ int64, err error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	p := newPlan(int64(rows))
	l := &loader{args: p.counts(), total: p.total(), progress: progress}
	l.args["today"] = today
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return 0, fmt.Errorf("acquire session: %w", err)
	}
	// The session is closed instead of released, because it has its own settings and
	// functions.
	l.session = pooled.Hijack()
	defer func() { err = errors.Join(err, l.close()) }()
	if _, err := l.session.Exec(ctx, file("data/session.sql")); err != nil {
		return 0, fmt.Errorf("prepare session: %w", err)
	}
	for _, s := range p {
		if err := l.step(ctx, s); err != nil {
			return 0, fmt.Errorf("load %s: %w", s.file, err)
		}
	}
	err = l.advanceSequences(ctx, p.tables())
	return l.done, problem.Doing(err, "advance sequences")
}

// loader is the state of one load.
type loader struct {
	session     *pgx.Conn
	args        pgx.NamedArgs
	done, total int64
	progress    func(done, total int64)
}

func (l *loader) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return problem.Doing(l.session.Close(ctx), "close session")
}

// step runs one file, chunk by chunk. Then it vacuums and analyzes the table, so that the
// table has statistics and the first autovacuum has nothing to do.
func (l *loader) step(ctx context.Context, s step) error {
	text := file("data/" + s.file + ".sql")
	args := maps.Clone(l.args)
	for first := int64(1); first <= s.rows; first += chunkRows {
		last := min(first+chunkRows-1, s.rows)
		args["first"], args["last"] = first, last
		tag, err := l.session.Exec(ctx, text, args)
		if err != nil {
			return fmt.Errorf("rows %d to %d: %w", first, last, err)
		}
		if tag.RowsAffected() != last-first+1 {
			return fmt.Errorf("rows %d to %d: the statement changed %d rows", first, last, tag.RowsAffected())
		}
		if tag.Insert() {
			l.done += tag.RowsAffected()
		}
		l.progress(l.done, l.total)
	}
	_, err := l.session.Exec(ctx, "VACUUM (ANALYZE) "+pgx.Identifier{s.table}.Sanitize())
	return problem.Doing(err, "vacuum")
}

// advanceSequences sets the sequence of every table to the last loaded id.
func (l *loader) advanceSequences(ctx context.Context, made plan) error {
	var tables []string
	var rows []int64
	for _, s := range made {
		tables, rows = append(tables, s.table), append(rows, s.rows)
	}
	_, err := l.session.Exec(ctx, `
		SELECT setval(pg_get_serial_sequence(quote_ident(loaded.name), 'id'), loaded.rows)
		FROM unnest($1::text[], $2::bigint[]) AS loaded (name, rows)
		WHERE EXISTS (
			SELECT FROM pg_attribute
			WHERE attrelid = quote_ident(loaded.name)::regclass AND attname = 'id'
		)`, tables, rows)
	return err
}
