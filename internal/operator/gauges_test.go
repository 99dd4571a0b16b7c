package operator

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/metrics"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
)

const cleanUp = riverjobs.LooseForeignKeys

// observedSite holds the databases of a worker. The first one is the jobs database.
type observedSite struct {
	all *installation.Connections
	// noted holds the bound parents of each database.
	noted *riverjobs.Bindings
	// servers are the reachable databases, by name.
	servers map[string]*dbtest.DB
}

// newObservedSite returns a site with databases of these names. A name that ends with an
// exclamation mark is an unreachable database, and a name that ends with a question mark
// is a database that never answers.
func newObservedSite(t *testing.T, names ...string) observedSite {
	c := &config.Config{Jobs: config.Jobs{Silence: time.Minute}}
	c.LooseForeignKeys.Enabled, c.LooseForeignKeys.Schedule = true, "* * * * *"
	c.Jobs.Silence = heartbeat.DefaultSilence
	s := observedSite{
		all: &installation.Connections{Config: c}, noted: &riverjobs.Bindings{},
		servers: map[string]*dbtest.DB{},
	}
	for _, text := range names {
		name := strings.TrimRight(text, "!?")
		var db database.Database
		switch {
		case strings.HasSuffix(text, "!"):
			db = databaseAt(t, unusedAddress(t))
		case strings.HasSuffix(text, "?"):
			db = databaseAt(t, silentAddress(t))
		default:
			server := dbtest.New(t)
			s.servers[name] = server
			db = server.Connected
			db.Direct = pgtest.Must(pgx.ParseConfig(server.URL))(t)
		}
		db.Name = name
		s.all.Databases = append(s.all.Databases, db)
		c.Databases = append(c.Databases, config.Database{Name: name})
		s.noted.SetParents(name, []*loosefk.Parent{{Recorded: "public.parents"}})
	}
	c.Jobs.Database = s.all.Databases[0].Name
	return s
}

// databaseAt returns a database at an address that has no Postgres server.
func databaseAt(t *testing.T, address string) database.Database {
	settings := pgtest.Must(pgxpool.ParseConfig("postgres://nobody@" + address + "/none?sslmode=disable"))(t)
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	return database.Database{Pool: pool, Direct: settings.ConnConfig, Names: dbtest.Names()}
}

// unusedAddress returns an address at which no server listens.
func unusedAddress(t *testing.T) string {
	listener := pgtest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// silentAddress returns an address that accepts connections and never answers.
func silentAddress(t *testing.T) string {
	listener := pgtest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}

// read returns the values of all gauges. The keys have the form `metric label label`.
func (s observedSite) read(t *testing.T, subscriptions ...*listen.Subscription) map[string]float64 {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	values := map[string]float64{}
	for _, sample := range (&Gauges{
		All: s.all, Noted: s.noted, Subscriptions: subscriptions,
		Log: slog.New(slog.DiscardHandler),
	}).Read(ctx) {
		key := strings.Join(append([]string{sample.Metric}, sample.Labels...), " ")
		require.NotContains(t, values, key)
		values[key] = sample.Value
	}
	return values
}

// gaugesOf returns the gauges of one database.
func gaugesOf(values map[string]float64, name string) map[string]float64 {
	kept := map[string]float64{}
	for key, value := range values {
		for word := range strings.FieldsSeq(key) {
			if word == name {
				kept[key] = value
			}
		}
	}
	return kept
}

// waitClasses returns the wait classes that a database reports.
func waitClasses(values map[string]float64, name string) []string {
	var found []string
	for _, class := range WaitClasses() {
		if values[fmt.Sprintf("%s %s %s %s", metrics.Waiting, cleanUp, name, class)] == 1 {
			found = append(found, string(class))
		}
	}
	return found
}

const insertTombstones = `INSERT INTO loose_foreign_keys_deleted_records (primary_key_value, fully_qualified_table_name, created_at, consume_after)
	SELECT id, $1, now() - interval '1 hour', now() + $3::interval FROM generate_series(1, $2) AS id`

func TestGaugesOfKeptDeletions(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main")
	db := dbtest.TrackedWithUndo(t, "CREATE TABLE projects (id bigint PRIMARY KEY)", "projects")
	s.all.Databases[0].Pool, s.all.Databases[0].Direct = db.Pool(), pgtest.Must(pgx.ParseConfig(db.URL))(t)
	s.all.Config.LooseForeignKeys.Undo.Keep = 72 * time.Hour
	empty := s.read(t)
	require.InDelta(t, 0, empty["sexton_undo_oldest_age_seconds main"], 0)
	require.NotContains(t, empty, "sexton_undo_limit_bytes main")
	db.Exec("INSERT INTO projects SELECT generate_series(1, 9); DELETE FROM projects; UPDATE sexton.undo SET kept_at = now() - interval '1 hour'")
	s.all.Config.LooseForeignKeys.Undo.MaxSize = 1 << 20
	values := s.read(t)
	require.Greater(t, values["sexton_undo_bytes main"], empty["sexton_undo_bytes main"])
	require.InDelta(t, 3600, values["sexton_undo_oldest_age_seconds main"], 60)
	require.InDelta(t, 1<<20, values["sexton_undo_limit_bytes main"], 0)
}

func TestGaugesOfABacklog(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main", "ci")
	s.servers["main"].Exec(insertTombstones, "public.parents", 3, "0")
	s.servers["main"].Exec(insertTombstones, "public.parents", 2, "1 hour")
	s.servers["main"].Exec("INSERT INTO sexton.swept (database, parent, integer_keys) VALUES ('main', 'public.parents', '{1,2,3,4}')")
	s.servers["ci"].Exec(insertTombstones, "public.undefined", 10_001, "0")

	values := s.read(t)
	const table = " loose_foreign_keys_deleted_records"
	require.InDelta(t, 5, values["sexton_backlog_rows main"+table], 0)
	require.InDelta(t, 2, values["sexton_backlog_deferred_rows main"+table], 0)
	require.InDelta(t, 4, values["sexton_backlog_confirming_rows main"+table], 0)
	require.InDelta(t, 3600, values["sexton_backlog_oldest_age_seconds main"+table], 60)
	require.InDelta(t, 0, values["sexton_backlog_undefined_tables main"+table], 0)
	require.InDelta(t, 10_000, values["sexton_backlog_rows ci"+table], 0)
	require.InDelta(t, 1, values["sexton_backlog_capped ci"+table], 0)
	require.InDelta(t, 1, values["sexton_backlog_undefined_tables ci"+table], 0)
	require.InDelta(t, 5, values["sexton_backlog_parent_rows main public.parents"], 0)
	require.InDelta(t, 3600, values["sexton_backlog_parent_oldest_age_seconds main public.parents"], 60)
	require.InDelta(t, 1_000, values["sexton_backlog_parent_rows ci public.undefined"], 0)
	require.Equal(t, []string{"worker"}, waitClasses(values, "main"))
	require.Equal(t, []string{"definition"}, waitClasses(values, "ci"))
}

func TestGaugesOfWaits(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main")
	db := s.servers["main"]
	db.Exec("INSERT INTO sexton.clients (client_id, host, pid) VALUES ('me', 'here', 1)")
	// The gauge has the wait class that a run in progress reports.
	db.Exec(`INSERT INTO sexton.runs (kind, database, holder, stats) VALUES ($1, 'main', 'me', '{"waiting_for": "replica r1 12 s behind", "waiting_class": "replica"}')`, cleanUp)
	require.Equal(t, []string{"replica"}, waitClasses(s.read(t), "main"))
	require.InDelta(t, 1, s.read(t)["sexton_running "+cleanUp+" main"], 0)
	require.InDelta(t, 1, s.read(t)["sexton_workers"], 0)
	db.Exec(`UPDATE sexton.runs SET stats = '{"waiting_for": "row locked by pid 1", "waiting_class": "lock"}'`)
	require.Equal(t, []string{"lock"}, waitClasses(s.read(t), "main"))
	db.Exec(`UPDATE sexton.runs SET stats = '{"duty": 55, "duty_reason": "lock wait"}'`)
	require.Empty(t, waitClasses(s.read(t), "main"))
	require.InDelta(t, 0.55, s.read(t)["sexton_duty_ratio "+cleanUp+" main"], 0)
	db.Exec(`UPDATE sexton.runs SET stats = '{}'`)
	require.NotContains(t, s.read(t), "sexton_duty_ratio "+cleanUp+" main")

	// If the last run reached the limits of its tick, the job waits for the next tick.
	db.Exec(insertTombstones, "public.parents", 1, "0")
	db.Exec(`UPDATE sexton.runs SET stats = '{"over_limit": true}', outcome = 'over_limit', ended_at = now()`)
	db.Exec("INSERT INTO sexton.schedules (kind, database, last_tick) VALUES ($1, 'main', now() - interval '1 minute')",
		cleanUp)
	require.Equal(t, []string{"tick"}, waitClasses(s.read(t), "main"))
	db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '1 hour'")
	require.Equal(t, []string{"deferred"}, waitClasses(s.read(t), "main"))
	db.Exec(`INSERT INTO sexton.leases (key, token, holder, acquired_at, expires_at)
		VALUES ('loose_foreign_keys/cleanup_worker:main', 1, 'somebody', now(), now() + interval '1 hour')`)
	require.Equal(t, []string{"lease"}, waitClasses(s.read(t), "main"))
	db.Exec("INSERT INTO sexton.river_queue (name, paused_at, updated_at) VALUES ($1, now(), now())", cleanUp)
	require.Equal(t, []string{"paused"}, waitClasses(s.read(t), "main"))
	require.InDelta(t, 1, s.read(t)["sexton_paused "+cleanUp], 0)
}

func TestGaugeOfTheLastSuccess(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main", "ci")
	const gauge = "sexton_last_success_timestamp_seconds " + cleanUp
	const due = "sexton_success_due_timestamp_seconds " + cleanUp
	values := s.read(t)
	require.Contains(t, values, gauge+" main", "before the first run")
	require.Zero(t, values[gauge+" main"])
	require.NotContains(t, values, due+" main", "no worker has served its queue")
	run := func(name, outcome, ago string) {
		s.servers["main"].Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome)
			VALUES ($1, $2, 'me', now() - $4::interval, now() - $4::interval, $3)`, cleanUp, name, outcome, ago)
	}
	run("main", "done", "2 hours")
	run("main", "over_limit", "1 hour")
	run("main", "failed", "30 min")
	run("main", "skipped", "20 min")
	run("ci", "failed", "10 min")
	run("main", "over_limit", "5 min")
	s.servers["main"].Exec("UPDATE sexton.runs SET held = 'rows of notes: row locked' WHERE started_at > now() - interval '6 min'")
	values = s.read(t)
	require.InDelta(t, time.Now().Add(-time.Hour).Unix(), values[gauge+" main"], 60)
	require.Contains(t, values, gauge+" ci")
	require.Zero(t, values[gauge+" ci"], "every run failed")

	// Ticks come every minute and alternate between the two databases.
	require.InDelta(t, 5*60, values[due+" main"]-values[gauge+" main"], 62,
		"the third tick is due after four to six minutes")
	require.Zero(t, (int64(values[due+" main"])/60)%2, "the first database has ticks in even minutes")
	require.NotContains(t, values, due+" ci")

	// Without a success, the time counts from the earliest time at which a run could have
	// succeeded.
	s.servers["main"].Exec(`INSERT INTO sexton.river_queue (name, created_at, updated_at) VALUES ($1, '2024-01-01 00:00:30Z', now())`, cleanUp)
	late := s.read(t)
	require.InDelta(t, values[due+" main"], late[due+" main"], 0, "the age of the queue does not matter after a success")
	require.InDelta(t, time.Now().Add(-runsKept).Unix()+6*60, late[due+" ci"], 120,
		"the time counts from the oldest run that the history may have")
	began := time.Now().Add(-3 * time.Hour).Truncate(2 * time.Minute)
	s.servers["main"].Exec(`UPDATE sexton.river_queue SET created_at = $1`, began.Add(30*time.Second))
	require.InDelta(t, began.Add(5*time.Minute).Unix(), s.read(t)[due+" ci"], 0, "the third odd minute after the queue was created")
}

// A daily kind that never succeeded is late after three days. A weekly kind is never
// late, because the history removes its runs earlier.
func TestGaugeOfKindsWithoutSuccess(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)
	due := func(cron string, ago time.Duration) time.Time {
		job := riverjobs.Job{
			Kind: "k", Queue: "k", Schedule: cron, Cron: config.Schedule(cron),
			Databases: []string{"main"},
		}
		shared := counted{queues: []dbsqlc.QueueStatesRow{{Queue: "other"}, {Queue: "k", Since: new(now.Add(-ago))}}}
		state := JobState{Job: job}
		state.Queue = "k"
		at, scheduled := successDue(job, "main", shared.since(state, now))
		require.True(t, scheduled)
		return time.Unix(int64(at), 0).UTC()
	}
	require.Equal(t, time.Date(2026, 11, 24, 2, 0, 0, 0, time.UTC), due("0 2 * * *", time.Hour), "a new queue")
	require.Equal(t, time.Date(2026, 11, 20, 2, 0, 0, 0, time.UTC), due("0 2 * * *", 4*24*time.Hour),
		"a daily kind without success is late")
	require.Equal(t, time.Date(2026, 11, 17, 2, 0, 0, 0, time.UTC), due("0 2 * * *", 400*24*time.Hour))
	require.True(t, due("0 2 * * 0", 400*24*time.Hour).After(now))
}

func TestGaugesOfListeners(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main")
	values := s.read(t, &listen.Subscription{Kind: cleanUp, Database: "main"},
		&listen.Subscription{Kind: cleanUp, Database: "elsewhere"})
	require.InDelta(t, 1, values["sexton_listener "+cleanUp+" main disconnected"], 0)
	require.InDelta(t, 0, values["sexton_listener "+cleanUp+" main listening"], 0)
	require.InDelta(t, 0, values["sexton_listener "+cleanUp+" main polling"], 0)
	require.Empty(t, gaugesOf(values, "elsewhere"))
}

// A database that is down or does not answer has only one gauge and does not affect other
// databases.
func TestGaugesOfDatabasesThatAreDown(t *testing.T) {
	t.Parallel()
	values := newObservedSite(t, "main", "sec!", "ci?").read(t)
	require.Equal(t, map[string]float64{"sexton_up sec": 0}, gaugesOf(values, "sec"))
	require.Equal(t, map[string]float64{"sexton_up ci": 0}, gaugesOf(values, "ci"))
	require.InDelta(t, 1, values["sexton_scrape_complete main"], 0)
	require.Contains(t, values, "sexton_waiting "+cleanUp+" main paused")
}

// If a database becomes read-only, status, gauges and readiness report the reason. If it
// is the jobs database, the worker is not ready, and all jobs wait, because it cannot
// send heartbeats.
func TestReadOnlyDatabases(t *testing.T) {
	t.Parallel()
	const tombstones,
		setting = "INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.parents', 1)",
		"accepts no writes: default_transaction_read_only is on"
	for turned, reasons := range map[string]map[string]string{
		"main": {"main": "database main " + setting, "ci": "database main " + setting},
		"ci":   {"ci": "database ci " + setting},
	} {
		s := newObservedSite(t, "main", "ci")
		heart := startHeart(t, s.all.Databases[0])
		for name, server := range s.servers {
			server.Exec(tombstones)
			if name == turned {
				server.Exec("ALTER DATABASE " + server.Name + " SET default_transaction_read_only = on")
				server.Connected.Pool.Reset()
			}
		}
		states := pgtest.Must(ReadJobs(t.Context(), s.all))(t)
		require.Len(t, states, 2)
		values := s.read(t)
		for _, state := range states {
			if reason := reasons[state.Database]; reason != "" {
				require.Equal(t, reason, *state.WaitingFor, "%s in %s", turned, state.Database)
				require.Equal(t, []string{"read_only"}, waitClasses(values, state.Database))
			} else {
				require.NotEqual(t, []string{"read_only"}, waitClasses(values, state.Database))
			}
			up := 1.0
			if state.Database == turned {
				up = 0
			}
			require.InDelta(t, up, values["sexton_up "+state.Database], 0, turned)
			require.InDelta(t, 1, values["sexton_scrape_complete "+state.Database], 0, turned)
		}
		ready := NewReadiness(t.Context(), s.all, nil, heart).Check(t.Context())
		require.Equal(t, turned != "main", ready.Ready)
		for _, db := range ready.Databases {
			if db.Name == turned {
				require.Equal(t, []string{reasons[turned]}, db.Reasons)
			} else {
				require.Empty(t, db.Reasons)
			}
		}
	}
}

// If the jobs database is down, wait classes are unknown, but each other database reports
// its backlog.
func TestGaugesWithoutTheJobsDatabase(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main?", "ci")
	s.servers["ci"].Exec(insertTombstones, "public.parents", 3, "0")
	values := s.read(t)
	require.Equal(t, map[string]float64{"sexton_up main": 0}, gaugesOf(values, "main"))
	require.InDelta(t, 1, values["sexton_up ci"], 0)
	require.InDelta(t, 0, values["sexton_scrape_complete ci"], 0)
	require.InDelta(t, 3, values["sexton_backlog_rows ci loose_foreign_keys_deleted_records"], 0)
	require.NotContains(t, values, "sexton_waiting "+cleanUp+" ci paused")
	require.NotContains(t, values, "sexton_workers")
}

// startHeart returns a heart that has sent its first heartbeat.
func startHeart(t *testing.T, db database.Database) *heartbeat.Heart {
	heart := &heartbeat.Heart{DB: db, ClientID: "me", Logger: slog.New(slog.DiscardHandler)}
	require.NoError(t, heart.Beat(t.Context()))
	return heart
}

// The queries of the gauges read few rows, however large the history and the backlog are.
func TestGaugesDoNotScan(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome)
		SELECT $1, 'main', 'me', now() - make_interval(secs => id), now(), CASE WHEN id > 100 THEN 'done' ELSE 'failed' END
		FROM generate_series(1, 50000) AS id`, cleanUp)
	db.Exec(insertTombstones, "public.parents", 50_000, "0")
	db.Exec("VACUUM ANALYZE")
	tx := pgtest.Begin(t, db.Pool())
	queries := dbtest.Names().Queries(tx)
	last := pgtest.Must(queries.RunsLast(t.Context(), []string{cleanUp, "another"}, []string{"main", "ci"}))(t)
	require.Len(t, last, 1)
	successes := pgtest.Must(queries.RunsLastSuccess(t.Context(), []string{cleanUp, "another"}, []string{"main", "ci"},
		lastRunsCap))(t)
	require.Len(t, successes, 1)
	require.True(t, pgtest.Scalar[bool](t, tx, "SELECT capped FROM sexton.backlog"))
	read := map[string]int64{}
	var table string
	var rows int64
	found := pgtest.Must(tx.Query(t.Context(), `SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0)
		FROM pg_stat_xact_user_tables WHERE relname IN ('runs', 'loose_foreign_keys_deleted_records')`))(t)
	pgtest.Must(pgx.ForEachRow(found, []any{&table, &rows}, func() error { read[table] = rows; return nil }))(t)
	require.Less(t, read["runs"], int64(200), "runs read")
	require.Less(t, read["loose_foreign_keys_deleted_records"], int64(components.PendingCap+100), "tombstones read")
}

func TestGroupsAreMeasured(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	c := &config.Config{Databases: []config.Database{{Name: "main"}}}
	c.AdjournedGroups.Enabled, c.AdjournedGroups.Schedule = true, "0 2 * * *"
	c.Jobs.Database = "main"
	s := observedSite{all: &installation.Connections{Config: c}, noted: &riverjobs.Bindings{}}
	s.all.Databases = append(s.all.Databases, db.Connected)
	db.Exec(`
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
		INSERT INTO groups (id, name, path, marked_for_deletion_on)
			SELECT n, n, n, (now() AT TIME ZONE 'UTC')::date - CASE WHEN n < 4 THEN 33 ELSE 3 END FROM generate_series(1, 10) AS n;
		INSERT INTO group_deletion_schedules SELECT id, 1, marked_for_deletion_on FROM groups WHERE id < 9;
		INSERT INTO sexton.group_destructions (group_id, user_id, attempts) VALUES (1, 1, 4), (2, 1, 5);
		INSERT INTO sexton.group_deletion_failures (group_id, last_error, retry_at) VALUES (3, 'kept', now() + interval '1 hour');`)
	values := s.read(t)
	for metric, want := range map[string]float64{
		"sexton_scrape_complete main":                                1,
		"sexton_backlog_rows main group_deletion_schedules":          3,
		"sexton_backlog_deferred_rows main group_deletion_schedules": 1,
		"sexton_groups_adjourned main":                               5,
		"sexton_groups_destroying main":                              2,
		"sexton_groups_stuck main":                                   1,
		"sexton_groups_unscheduled main":                             2,
	} {
		require.InDelta(t, want, values[metric], 0, metric)
	}
	// The groups were marked 33 days ago and fell due 31 days later.
	age := values["sexton_backlog_oldest_age_seconds main group_deletion_schedules"]
	require.GreaterOrEqual(t, age, 2*86400.0)
	require.Less(t, age, 3*86400.0)
}
