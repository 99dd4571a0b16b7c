package demo

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/exampleapp"
	"sexton/internal/problem"
)

// createDemoDatabase makes the database, or finds the one that an earlier demo has finished loading.
func createDemoDatabase(ctx context.Context, url string) (fresh bool, err error) {
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, fmt.Errorf("connect to the private postgres: %w", err)
	}
	defer admin.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost with it
	name := pgx.Identifier{demoDatabase}.Sanitize()
	var loaded bool
	// The comment is written once all data is there.
	const look = `SELECT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $1 AND pg_catalog.shobj_description(oid, 'pg_database') = 'loaded')`
	if err := admin.QueryRow(ctx, look, demoDatabase).Scan(&loaded); err != nil {
		return false, fmt.Errorf("look for the sample data: %w", err)
	}
	if loaded {
		return false, nil
	}
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			return false, fmt.Errorf("create database %s: %w", name, err)
		}
	}
	return true, nil
}

// demoDiffs is of how many diffs the texts are there: thousands of objects would leave the other scenes little of two processors.
const demoDiffs = 600

// cleanDiffs does to all diffs but the first $1 what GitLab does to those of old merge requests. It says how many files go.
const cleanDiffs = `
WITH cleaned AS (
	UPDATE merge_request_diffs SET state = 'without_files', files_count = 0 WHERE id > $1 RETURNING id
)
DELETE FROM merge_request_diff_files AS file USING cleaned WHERE file.merge_request_diff_id = cleaned.id`

// loadSample fills a fresh database, and counts the rows of one that is not.
func loadSample(ctx context.Context, pool *pgxpool.Pool, fresh bool, rows int, display *Display, out io.Writer) (int64, error) {
	if !fresh {
		there, err := exampleapp.Count(ctx, pool)
		_, _ = fmt.Fprintf(out, "going on with the %d rows of an earlier demo; none are loaded\n\n", there)
		return there, err
	}
	if _, err := pool.Exec(ctx, exampleapp.Schema()); err != nil {
		return 0, fmt.Errorf("create the sample application's tables: %w", err)
	}
	loaded, err := exampleapp.Load(ctx, pool, rows, display.Loaded)
	if err != nil {
		return 0, err
	}
	cleaned, err := pool.Exec(ctx, cleanDiffs, demoDiffs)
	if err != nil {
		return 0, fmt.Errorf("clean up old diffs: %w", err)
	}
	loaded -= cleaned.RowsAffected()
	_, err = pool.Exec(ctx, "COMMENT ON DATABASE "+pgx.Identifier{demoDatabase}.Sanitize()+" IS 'loaded'")
	return loaded, problem.Doing(err, "mark the sample data as loaded")
}
