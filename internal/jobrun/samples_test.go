package jobrun_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/jobrun"
	"sexton/internal/pgtest"
)

const tombstones = "loose_foreign_keys_deleted_records"

func TestOneWorkerAtATimeAddsSamples(t *testing.T) {
	t.Parallel()
	main, ci := dbtest.New(t), dbtest.New(t)
	ci.Connected.Name = "ci"
	ci.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, created_at)
		SELECT 'public.parents', 1, now() - interval '1 minute' FROM generate_series(1, 3)`)
	worker := func() *jobrun.Sampler {
		return &jobrun.Sampler{
			Jobs: "main", Tables: map[string][]string{"main": {tombstones}, "ci": {tombstones}},
			Logger: slog.New(slog.DiscardHandler),
		}
	}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			s := worker()
			_ = s.Sample(t.Context(), ci.Connected)
			_ = s.Sample(t.Context(), main.Connected)
		})
	}
	workers.Wait()
	const all = "SELECT database, deletion_table, pending, capped, round(oldest_age_seconds / 10) * 10, coarse FROM sexton.samples ORDER BY 1"
	first := [][]string{{"ci", tombstones, "3", "f", "60", "t"}, {"main", tombstones, "0", "f", "0", "t"}}
	require.Equal(t, first, main.Rows(all))

	// The next sample must count the rows that runs have finished since the first sample,
	// by database and by the kind's deletion table.
	main.Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome, stats)
		SELECT kind, 'ci', 'host', now() - age, now() - age, 'done', '{"latency_seconds": {"0.1": 2, "+Inf": 1}}'
		FROM (VALUES ('clean', interval '5 seconds'), ('clean', '6 seconds'), ('clean', '3 minutes'), ('other', '5 seconds')) AS run (kind, age)`)
	// After 20 seconds the next sample is due. Only the first sample of each five minutes
	// is marked as coarse.
	main.Exec("UPDATE sexton.samples SET taken_at = taken_at - interval '20 seconds'")
	next := worker()
	next.Kinds = map[string]string{"clean": tombstones, "other": "another"}
	require.NoError(t, next.Sample(t.Context(), ci.Connected))
	require.NoError(t, next.Sample(t.Context(), main.Connected))
	require.Len(t, main.Rows(all), 4)
	require.Equal(t, [][]string{{"ci", "6"}, {"main", "0"}},
		main.Rows("SELECT database, sum(finished) FROM sexton.samples GROUP BY 1 ORDER BY 1"))
	require.Equal(t, "t", main.Rows(`SELECT count(*) FILTER (WHERE coarse) = count(DISTINCT date_bin('5 minutes', taken_at, 'epoch'))
		FROM sexton.samples WHERE database = 'main'`)[0][0])
}

func TestMissingSampleIsLoggedWithItsReason(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	d.Exec("DROP VIEW sexton.backlog")
	var log pgtest.Journal
	s := &jobrun.Sampler{Jobs: "main", Logger: log.Logger()}
	ctx, cancel := context.WithCancel(t.Context())
	var sampling sync.WaitGroup
	sampling.Go(func() { s.Run(ctx, d.Connected) })
	pgtest.WaitFor(t, "the log line of the missing sample", func(context.Context) (bool, error) {
		return strings.Contains(log.String(), "backlog_not_sampled"), nil
	})
	cancel()
	sampling.Wait()
	require.Contains(t, log.String(), "backlog_not_sampled")
	require.Contains(t, log.String(), "does not exist")
}

func TestSamplesAreKeptForSevenDays(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	d.Exec(`INSERT INTO sexton.samples
		SELECT now() - age, 'main', 'a', 1, false, 0, 0, coarse
		FROM (VALUES (interval '23 hours', false), ('25 hours', false), ('26 hours', true), ('6 days', false), ('167 hours', true), ('8 days', true), ('9 days', false))
			AS kept (age, coarse)`)
	add := func() {
		sampler := &jobrun.Sampler{Jobs: "main", Logger: slog.New(slog.DiscardHandler)}
		require.NoError(t, sampler.Sample(t.Context(), d.Connected))
	}
	add()
	require.Equal(t, [][]string{{"167", "t"}, {"26", "t"}, {"23", "f"}}, d.Rows(
		"SELECT round(extract(epoch FROM now() - taken_at) / 3600), coarse FROM sexton.samples ORDER BY taken_at"))

	// A sample removes at most 1,000 expired samples.
	d.Exec(`INSERT INTO sexton.samples SELECT now() - interval '2 days' - n * interval '1 second', 'main', 'a', 1, false, 0, 0, false FROM generate_series(1, 1500) AS n`)
	add()
	require.EqualValues(t, 503, pgtest.Scalar[int64](t, d.Database, "SELECT count(*) FROM sexton.samples"))
}

func TestReadSamplesKeepsMaxima(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	// Bins start at multiples of 60 seconds since the epoch. The samples of "main" within
	// the hour fall into two bins at any time of day.
	d.Exec(`INSERT INTO sexton.samples
		SELECT date_bin('60 seconds', now(), 'epoch') - age, database, 'a', pending, false, 0, pending * 2, false
		FROM (VALUES (interval '119 seconds', 'main', 5), ('100 seconds', 'main', 900), ('70 seconds', 'main', 6), ('30 seconds', 'main', 7), ('30 seconds', 'ci', 1),
			('2 hours', 'main', 5000)) AS sample (age, database, pending)`)
	series := pgtest.Must(jobrun.ReadSamples(t.Context(), d.Connected, time.Hour, time.Minute))(t)
	require.Len(t, series, 2)
	require.Equal(t, "ci", series[0].Database)
	require.Equal(t, "main", series[1].Database)
	points := series[1].Points
	require.Len(t, points, 2, "samples older than the span are omitted")
	require.EqualValues(t, 900, points[0].Pending)
	require.InDelta(t, 1800, points[0].OldestAgeSeconds, 0)
	require.EqualValues(t, 7, points[1].Pending)
	require.Equal(t, points[0].At+60, points[1].At)
}
