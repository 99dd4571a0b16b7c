package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/exampleapp"
	"sexton/internal/problem"
)

// createDemoDatabase creates the demo's database on the server of the given URL.
func createDemoDatabase(ctx context.Context, url string) error {
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the private postgres: %w", err)
	}
	defer admin.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost with it
	_, err = admin.Exec(ctx, "CREATE DATABASE "+demoDatabase)
	return problem.Doing(err, "create database %s", demoDatabase)
}

// demoDiffs is the number of diffs in the sample data that keep their files. On two
// processors, moving thousands of objects would slow down the other scenes.
const demoDiffs = 600

// cleanDiffs deletes the files of the diffs with an ID above $1. GitLab does the same for
// the diffs of old merge requests.
const cleanDiffs = `
WITH cleaned AS (
	UPDATE merge_request_diffs SET state = 'without_files', files_count = 0 WHERE id > $1 RETURNING id
)
DELETE FROM merge_request_diff_files AS file USING cleaned WHERE file.merge_request_diff_id = cleaned.id`

// loadSample creates and fills the tables of the sample application. It returns the
// number of rows.
func loadSample(ctx context.Context, pool *pgxpool.Pool, rows int, display *Display) (int64, error) {
	if _, err := pool.Exec(ctx, exampleapp.Schema()); err != nil {
		return 0, fmt.Errorf("create the sample application's tables: %w", err)
	}
	loaded, err := exampleapp.Load(ctx, pool, rows, display.Loaded)
	if err != nil {
		return 0, err
	}
	cleaned, err := pool.Exec(ctx, cleanDiffs, demoDiffs)
	return loaded - cleaned.RowsAffected(), problem.Doing(err, "clean up old diffs")
}
