package jobrun

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/pace"
	"sexton/internal/problem"
)

// SampleEvery is the time between two samples of the backlog. All of them are kept for a
// day, one in five minutes for 7 days: about 7,500 rows per table of a database.
const SampleEvery = 15 * time.Second

const (
	// slack is by how much a sample may come early: each worker goes by its own clock.
	slack = 2 * time.Second
	// timeout limits a sample: the application may have a table locked.
	timeout = 5 * time.Second
)

// Sampler samples the view "sexton".backlog of each database of a worker.
type Sampler struct {
	// Jobs is the name of the database that has the samples.
	Jobs string
	// Tables are the deletion tables of a database that belong to enabled kinds. Others
	// are sampled while something waits in them.
	Tables map[string][]string
	// Kinds are the enabled ones, with the deletion table of each.
	Kinds map[string]string
	// Logger learns at level debug why a sample is missing, which is seen in the history.
	Logger *slog.Logger

	mu sync.Mutex
	// remote is the last that each other database has said.
	remote map[string]reading
}

type reading struct {
	at   time.Time
	rows []dbsqlc.SamplesBacklogRow
}

// Run samples a database every 15 s until ctx ends.
func (s *Sampler) Run(ctx context.Context, db database.Database) {
	for {
		if err := s.Sample(ctx, db); err != nil && ctx.Err() == nil {
			s.Logger.DebugContext(ctx, "backlog is not sampled", "database", db.Name, "error", err)
		}
		if pace.Sleep(ctx, SampleEvery) != nil {
			return
		}
	}
}

// Sample reads the backlog of a database. In the jobs database it adds a sample of all
// databases, unless another worker has added one meanwhile, and removes some of the
// samples that are past their time. A database whose last reading is older than two
// intervals is left out: it may be down.
func (s *Sampler) Sample(ctx context.Context, db database.Database) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if db.Name != s.Jobs {
		rows, err := db.Names.Queries(db.Async()).SamplesBacklog(ctx, s.Tables[db.Name])
		if err != nil {
			return fmt.Errorf("read backlog of database %s: %w", db.Name, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.remote == nil {
			s.remote = map[string]reading{}
		}
		s.remote[db.Name] = reading{time.Now(), rows}
		return nil
	}
	err := pgx.BeginTxFunc(ctx, db.Async(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		queries := db.Names.Queries(tx)
		if err := queries.SamplesLock(ctx); err != nil {
			return err //nolint:wrapcheck // problem.Doing adds the context
		}
		if err := queries.SamplesAdd(ctx, s.sample()); err != nil {
			return err //nolint:wrapcheck // problem.Doing adds the context
		}
		return queries.SamplesPrune(ctx)
	})
	return problem.Doing(err, "add sample")
}

func (s *Sampler) sample() dbsqlc.SamplesAddParams {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := dbsqlc.SamplesAddParams{
		Database: s.Jobs, OwnTables: s.Tables[s.Jobs],
		Seconds: (SampleEvery - slack).Seconds(),
	}
	for kind, table := range s.Kinds {
		row.Kinds, row.KindTables = append(row.Kinds, kind), append(row.KindTables, table)
	}
	for name, last := range s.remote {
		if time.Since(last.at) > 2*SampleEvery {
			continue
		}
		for _, r := range last.rows {
			row.Databases = append(row.Databases, name)
			row.DeletionTables = append(row.DeletionTables, r.DeletionTable)
			row.Pending = append(row.Pending, r.Pending)
			row.Capped = append(row.Capped, r.Capped)
			row.Deferred = append(row.Deferred, r.Deferred)
			row.OldestAges = append(row.OldestAges, r.OldestAgeSeconds)
		}
	}
	return row
}

// Series is one deletion table over time.
type Series struct {
	Database string
	Table    string
	// Points are in the order of time, the highest values of their bin each; without
	// samples there is none.
	Points []Point
}

// Point is the backlog at one time.
type Point struct {
	// At is the beginning of the bin, in seconds of the epoch.
	At               int64
	Pending          int64
	OldestAgeSeconds float64
	// Finished is the number of rows that runs ended in the bin.
	Finished int64
}

// ReadSamples returns what is kept of the last span, in bins of a length, by table and
// database.
func ReadSamples(ctx context.Context, jobs database.Database, span, bin time.Duration) ([]Series, error) {
	rows, err := jobs.Queries().SamplesSince(ctx, bin.Seconds(), span.Seconds())
	if err != nil {
		return nil, fmt.Errorf("read samples: %w", err)
	}
	var all []Series
	for _, row := range rows {
		if last := len(all) - 1; last < 0 || all[last].Database != row.Database ||
			all[last].Table != row.DeletionTable {
			all = append(all, Series{Database: row.Database, Table: row.DeletionTable})
		}
		series := &all[len(all)-1]
		series.Points = append(series.Points, Point{
			At: row.AtEpoch, Pending: row.Pending,
			OldestAgeSeconds: row.OldestAgeSeconds, Finished: row.Finished,
		})
	}
	return all, nil
}
