// Package samples keeps the backlog of every deletion table over time, in Postgres, so that it outlives the workers.
//
// A sample is taken every 15 s, by whichever worker comes first. All of them are kept for a day, one in five minutes for 7 days:
// about 7,500 rows per table of a database.
package samples

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

// Every is the time between two samples.
const Every = 15 * time.Second

// slack is by how much a sample may come early: workers look at their own clocks.
const slack = time.Second

// Sample is the backlog of one deletion table at one time.
type Sample struct {
	// Database is the configured name.
	Database string
	Table    string
	// Pending and Deferred count rows, up to the cap of the count; Capped tells that there are more.
	Pending   int64
	Capped    bool
	Deferred  int64
	OldestAge time.Duration
}

// Due reports whether the last sample is old enough for another one.
func Due(ctx context.Context, jobs database.Database) (bool, error) {
	fresh, err := jobs.Queries().SamplesFresh(ctx, (Every - slack).Seconds())
	if err != nil {
		return false, fmt.Errorf("look for samples: %w", err)
	}
	return !fresh, nil
}

// Add adds a sample of all tables, unless another worker was faster, and removes some of those past their time. It reports whether
// it has added them.
func Add(ctx context.Context, jobs database.Database, tables []Sample) (added bool, err error) {
	row := dbsqlc.SamplesAddParams{}
	for _, table := range tables {
		row.Databases = append(row.Databases, table.Database)
		row.DeletionTables = append(row.DeletionTables, table.Table)
		row.Pending = append(row.Pending, table.Pending)
		row.Capped = append(row.Capped, table.Capped)
		row.Deferred = append(row.Deferred, table.Deferred)
		row.OldestAges = append(row.OldestAges, table.OldestAge.Seconds())
	}
	err = pgx.BeginFunc(ctx, jobs.Pool, func(tx pgx.Tx) error {
		queries := jobs.Names.Queries(tx)
		// The look comes after the lock, in a statement of its own: it has to see what the last holder committed.
		if locked, err := queries.SamplesLock(ctx); err != nil || !locked {
			return err
		}
		if fresh, err := queries.SamplesFresh(ctx, (Every - slack).Seconds()); err != nil || fresh {
			return err
		}
		if _, err := queries.SamplesAdd(ctx, row); err != nil {
			return err
		}
		added = true
		_, err := queries.SamplesPrune(ctx)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("add sample: %w", err)
	}
	return added, nil
}

// Series is one deletion table over time.
type Series struct {
	Database string
	Table    string
	// Points are in the order of time, the highest values of their bin each; without samples there is none.
	Points []Point
}

// Point is the backlog at one time.
type Point struct {
	// At is the beginning of the bin, in seconds of the epoch.
	At               int64
	Pending          int64
	OldestAgeSeconds float64
}

// Read returns what is kept of the last span, in bins of a length, by table and database.
func Read(ctx context.Context, jobs database.Database, span, bin time.Duration) ([]Series, error) {
	rows, err := jobs.Queries().SamplesSince(ctx, dbsqlc.SamplesSinceParams{Seconds: span.Seconds(), BinSeconds: bin.Seconds()})
	if err != nil {
		return nil, fmt.Errorf("read samples: %w", err)
	}
	var all []Series
	for _, row := range rows {
		if last := len(all) - 1; last < 0 || all[last].Database != row.Database || all[last].Table != row.DeletionTable {
			all = append(all, Series{Database: row.Database, Table: row.DeletionTable})
		}
		series := &all[len(all)-1]
		series.Points = append(series.Points, Point{At: row.AtEpoch, Pending: row.Pending, OldestAgeSeconds: row.OldestAgeSeconds})
	}
	return all, nil
}
