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

// SampleEvery is the time between two samples of the backlog. All samples are kept for
// one day, and one sample per five minutes is kept for 7 days. That is about 7,500 rows
// per deletion table.
const SampleEvery = 15 * time.Second

const (
	// slack is the part of the interval by which a sample may be early. Each worker has
	// its own timer.
	slack = 2 * time.Second
	// timeout limits the time of one sample, because the application may have locked a
	// table.
	timeout = 5 * time.Second
)

// Sampler adds samples of the view "sexton".backlog of each of a worker's databases.
type Sampler struct {
	// Jobs is the name of the database that stores the samples.
	Jobs string
	// Tables lists the deletion tables of the enabled kinds, by database. Other deletion
	// tables are sampled while they have pending rows.
	Tables map[string][]string
	// Kinds maps each enabled kind to its deletion table.
	Kinds map[string]string
	// Logger receives a debug line for each missing sample.
	Logger *slog.Logger

	mu sync.Mutex
	// remote holds the last reading of each database other than Jobs.
	remote map[string]reading
}

type reading struct {
	at   time.Time
	rows []dbsqlc.SamplesBacklogRow
}

// Run samples a database every SampleEvery until ctx ends.
func (s *Sampler) Run(ctx context.Context, db database.Database) {
	for {
		if err := s.Sample(ctx, db); err != nil && ctx.Err() == nil {
			s.Logger.DebugContext(ctx, "backlog_not_sampled", "database", db.Name, "error", err)
		}
		if pace.Sleep(ctx, SampleEvery) != nil {
			return
		}
	}
}

// Sample reads the backlog of a database. For the jobs database it adds a sample of all
// databases, unless another worker has just added one, and removes a limited number of
// expired samples. The sample omits a database whose last reading is older than two
// intervals, because that database may be down.
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

// Series is the backlog of one deletion table over time.
type Series struct {
	Database string
	Table    string
	// Points are ordered by time. A point has the highest values of the samples in its
	// bin. A bin without samples has no point.
	Points []Point
}

// Point is the backlog of one deletion table in one time bin.
type Point struct {
	// At is the start of the bin as Unix time.
	At               int64
	Pending          int64
	OldestAgeSeconds float64
	// Finished is the number of rows that runs finished in the bin.
	Finished int64
}

// ReadSamples returns one series per deletion table and database. The series cover the
// last span and have one point per bin.
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
