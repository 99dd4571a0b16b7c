package triggers_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

// owner is a role that owns the table of events and may create tables, with no right on Sexton's schema. Warnings are what Postgres told it.
func (b *bundle) owner() (conn *pgx.Conn, warnings *[]string) {
	b.t.Helper()
	role := b.CreateRole()
	name := pgx.Identifier{role}.Sanitize()
	b.Exec("GRANT USAGE, CREATE ON SCHEMA public TO " + name)
	for _, table := range b.Rows("SELECT relid::text FROM pg_partition_tree('events')") {
		b.Exec("ALTER TABLE " + table[0] + " OWNER TO " + name)
	}
	config := pgtest.Must(pgx.ParseConfig(b.AsRole(role)))(b.t)
	warnings = &[]string{}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Severity == "WARNING" {
			*warnings = append(*warnings, n.Message)
		}
	}
	conn = pgtest.Must(pgx.ConnectConfig(b.t.Context(), config))(b.t)
	b.t.Cleanup(func() { _ = conn.Close(b.t.Context()) })
	require.Error(b.t, conn.QueryRow(b.t.Context(), "SELECT count(*) FROM sexton.events").Scan(new(int)))
	return conn, warnings
}

func (b *bundle) installEvent(parents ...triggers.Parent) triggers.Report {
	b.t.Helper()
	b.cfg.EventTrigger = new(true)
	return b.install(parents...)
}

func TestEventTriggerTracksNewPartitionsAtOnce(t *testing.T) {
	t.Parallel()
	type example struct{ ddl, deletion, want string }
	pgtest.Each(t, map[string]example{
		"created": {
			"CREATE TABLE fresh PARTITION OF events FOR VALUES FROM (20) TO (30)",
			"INSERT INTO fresh (id) VALUES (21); DELETE FROM fresh", "public.events 21",
		},
		"created in a schema of its own": {
			"CREATE SCHEMA own CREATE TABLE fresh PARTITION OF public.events FOR VALUES FROM (20) TO (30)",
			"INSERT INTO own.fresh (id) VALUES (21); DELETE FROM own.fresh", "public.events 21",
		},
		"attached, with columns in another order": {
			`CREATE TABLE fresh (gone int, "a\b""c" int, note text, id bigint); ALTER TABLE fresh DROP COLUMN gone, DROP COLUMN "a\b""c";
			ALTER TABLE events ATTACH PARTITION fresh FOR VALUES FROM (20) TO (30)`,
			"INSERT INTO fresh (id) VALUES (21); DELETE FROM fresh", "public.events 21",
		},
		"below a partition": {
			"CREATE TABLE fresh PARTITION OF events FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (id); CREATE TABLE leaf PARTITION OF fresh DEFAULT",
			"INSERT INTO leaf (id) VALUES (21), (22); DELETE FROM leaf WHERE id = 21; DELETE FROM fresh", "public.events 22",
		},
		"attached with partitions of its own": {
			`CREATE TABLE fresh (id bigint, note text) PARTITION BY RANGE (id); CREATE TABLE leaf PARTITION OF fresh DEFAULT;
			ALTER TABLE events ATTACH PARTITION fresh FOR VALUES FROM (20) TO (30)`,
			"INSERT INTO leaf (id) VALUES (21); DELETE FROM leaf", "public.events 21",
		},
		"detached, and attached again": {
			`DELETE FROM events_low; ALTER TABLE events DETACH PARTITION events_low; ALTER TABLE events_low DROP COLUMN note, DROP COLUMN id, ADD COLUMN note text, ADD COLUMN id bigint;
			ALTER TABLE events ATTACH PARTITION events_low FOR VALUES FROM (0) TO (10)`,
			"INSERT INTO events_low (id) VALUES (3); DELETE FROM events_low", "public.events 3",
		},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, partitioned)
		report := b.installEvent(id("events"))
		require.Contains(t, report.Triggers, triggers.Change{Trigger: triggers.EventTrigger, Action: triggers.Created})
		app, warnings := b.owner()
		b.Exec("GRANT CREATE ON DATABASE " + pgx.Identifier{app.Config().Database}.Sanitize() + " TO PUBLIC")
		pgtest.Exec(t, app, test.ddl)
		require.Empty(t, *warnings)
		require.Empty(t, b.status(id("events")), "they are what an installation makes")
		pgtest.Exec(t, app, test.deletion)
		require.Contains(t, b.tombstones(), test.want)
		pgtest.Exec(t, app, "DROP TABLE events")
	})
}

func TestEventTriggerCapturesTruncateOfNewPartitions(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	b.cfg.Truncate = triggers.Capture
	b.installEvent(id("events"))
	app, _ := b.owner()
	pgtest.Exec(t, app, `CREATE TABLE fresh PARTITION OF events FOR VALUES FROM (20) TO (30); INSERT INTO fresh (id) VALUES (21); TRUNCATE fresh`)
	require.Equal(t, []string{"public.events 21"}, b.tombstones())
}

// What goes wrong is a warning, and the next partition has its triggers all the same.
func TestEventTriggerNeverFailsTheCommand(t *testing.T) {
	t.Parallel()
	attach := "CREATE TABLE fresh PARTITION OF events FOR VALUES FROM (20) TO (30)"
	type example struct{ before, ddl, warning string }
	pgtest.Each(t, map[string]example{
		"no rights": {
			"ALTER FUNCTION sexton.track_new_partitions() OWNER TO weak", attach,
			"Sexton: trigger sexton_track is not on partition public.fresh: permission denied to set parameter \"session_replication_role\"",
		},
		"a trigger of the owner's with that name": {
			"", `CREATE TABLE fresh (id bigint, note text); CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER sexton_track AFTER DELETE ON fresh FOR EACH STATEMENT EXECUTE FUNCTION own();
			ALTER TABLE events ATTACH PARTITION fresh FOR VALUES FROM (20) TO (30)`,
			"Sexton: trigger sexton_track is not on partition public.fresh: a trigger of the name sexton_track runs public.own, which is not ours",
		},
		"a foreign table": {
			"CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; GRANT USAGE ON FOREIGN SERVER s TO PUBLIC",
			"CREATE FOREIGN TABLE fresh (id bigint, note text) SERVER s; ALTER TABLE events ATTACH PARTITION fresh FOR VALUES FROM (20) TO (30)",
			"Sexton: trigger sexton_track is not on partition public.fresh: it is a foreign table, from which Postgres collects no deleted rows",
		},
		"an event trigger that would get a superuser's rights": {
			`CREATE FUNCTION loud() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN IF current_user::regrole = ''strong''::regrole THEN RAISE; END IF; END';
			CREATE EVENT TRIGGER loud ON ddl_command_start EXECUTE FUNCTION loud(); ALTER EVENT TRIGGER loud ENABLE ALWAYS`, attach,
			"Sexton: trigger sexton_track is not on partition public.fresh: an event trigger fires always and has the rights of its caller, " +
				"which would be those of a superuser",
		},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, partitioned)
		b.installEvent(id("events"))
		app, warnings := b.owner()
		if test.before != "" {
			b.Exec(strings.NewReplacer("weak", app.Config().User, "strong", b.conn.Config().User).Replace(test.before))
		}
		pgtest.Exec(t, app, test.ddl)
		require.Contains(t, *warnings, test.warning)
		pgtest.Exec(t, app, "DROP TABLE events")
	})
}

// The lock of a partition that others use is waited for a second, and keeps no other partition from its triggers.
func TestEventTriggerGoesPastALockedPartition(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	b.installEvent(id("events"))
	app, warnings := b.owner()
	b.Exec("DROP TRIGGER sexton_track ON events_low")
	pgtest.Begin(t, b.Pool(), "LOCK TABLE events_low IN ROW EXCLUSIVE MODE")
	pgtest.Exec(t, app, "CREATE TABLE fresh (id bigint, note text); ALTER TABLE events ATTACH PARTITION fresh FOR VALUES FROM (20) TO (30)")
	require.Equal(t, []string{"Sexton: trigger sexton_track is not on partition public.events_low: canceling statement due to lock timeout"}, *warnings)
	require.Len(t, b.status(id("events")), 1)
}

// Functions of other event triggers, which anyone may own, must not run with the rights of this one's.
func TestEventTriggerRunsNoCodeWithItsRights(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	b.installEvent(id("events"))
	app, warnings := b.owner()
	b.Exec(`CREATE TABLE seen (role text); GRANT INSERT, SELECT ON seen TO PUBLIC;
		CREATE FUNCTION log_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen VALUES (current_user); END';
		ALTER FUNCTION log_ddl() OWNER TO ` + pgx.Identifier{app.Config().User}.Sanitize() + `;
		CREATE EVENT TRIGGER aaa_log ON ddl_command_start EXECUTE FUNCTION log_ddl();
		CREATE EVENT TRIGGER zzz_log ON ddl_command_end EXECUTE FUNCTION log_ddl()`)
	pgtest.Exec(t, app, `BEGIN;
		CREATE TABLE fresh PARTITION OF events FOR VALUES FROM (20) TO (30);
		SET LOCAL default_transaction_isolation = 'serializable'; SET LOCAL standard_conforming_strings = off; SET LOCAL quote_all_identifiers = on;
		SET LOCAL search_path = pg_temp, public; CREATE TEMP TABLE pg_class (oid oid); CREATE TEMP TABLE pg_trigger (oid oid);
		ALTER TABLE public.events_high ADD CHECK (id > 0);
		CREATE TABLE public.other PARTITION OF public.events FOR VALUES FROM (30) TO (40);
		COMMIT`)
	require.Empty(t, *warnings)
	require.Equal(t, [][]string{{app.Config().User}}, b.Rows("SELECT DISTINCT role FROM seen"))
	require.Empty(t, b.status(id("events")))
	require.Equal(t, "origin", pgtest.Scalar[string](t, app, "SHOW session_replication_role"))
}

// A role that may run Sexton's functions makes the trigger of its own root, and so its texts. The procedure makes the role a superuser, and
// leaves the partition as the event trigger expects it in the end.
func TestEventTriggerTakesNoSQLFromATrigger(t *testing.T) {
	t.Parallel()
	const (
		partition = "CREATE TABLE public.fresh PARTITION OF public.events FOR VALUES FROM (20) TO (30)"
		unlike    = "the trigger of its root is not as triggers install makes it"
	)
	tests := map[string]struct{ trigger, old, now, obstacle string }{
		"name of the transition table": {
			"sexton_track", "sexton_deleted", `"o EXECUTE FUNCTION unique_key_recheck();CALL public.rise()--"`, unlike,
		},
		"another transition table":     {"sexton_track", "sexton_deleted", `other`, unlike},
		"another event":                {"sexton_track", "DELETE", "UPDATE", unlike},
		"an argument with a quote":     {"sexton_truncate", "'reject'", `'reject'');CALL public.rise()--'`, unlike},
		"an argument with a backslash": {"sexton_truncate", "'reject'", `E'reject\\'');CALL public.rise()--'`, unlike},
		"one more argument":            {"sexton_track", "'public.events'", `'public.events', 'x\000'');CALL public.rise()--'`, unlike},
		"another function":             {"sexton_truncate", "sexton.track_truncate", `sexton."track_();CALL public.rise()--"`, unlike},
	}
	b := setup(t, partitioned)
	b.installEvent(id("events"))
	app, warnings := b.owner()
	role := pgx.Identifier{app.Config().User}.Sanitize()
	fresh := ""
	for _, def := range b.Rows("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'events'::regclass") {
		statement := strings.Replace(def[0], "CREATE TRIGGER", "CREATE OR REPLACE TRIGGER", 1)
		fresh += strings.ReplaceAll(statement, "ON public.events", "ON public.fresh") + ";"
	}
	b.Exec("GRANT USAGE, CREATE ON SCHEMA sexton TO " + role + "; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO " + role)
	for name, test := range tests {
		t.Log(name)
		*warnings = nil
		statement := pgtest.Scalar[string](t, app, `SELECT pg_get_triggerdef(oid) FROM pg_trigger
			WHERE tgrelid = 'events'::regclass AND tgname = $1`, test.trigger)
		require.Contains(t, statement, test.old)
		for _, sql := range []string{
			"BEGIN",
			"CREATE PROCEDURE public.rise() LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE " + role + " SUPERUSER; EXECUTE replace($x$" + fresh +
				"$x$, concat('/', 'public.events'::regclass::oid), concat('/', 'public.fresh'::regclass::oid)); END $$",
			`CREATE FUNCTION sexton."track_();CALL public.rise()--"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
			"DROP TRIGGER " + test.trigger + " ON events",
			strings.Replace(statement, test.old, test.now, 1),
			partition,
		} {
			pgtest.Exec(t, app, sql)
		}
		require.Zero(t, pgtest.Scalar[int64](t, app, "SELECT count(*) FROM pg_roles WHERE rolname = $1 AND rolsuper", app.Config().User))
		require.Equal(t, []string{"Sexton: trigger " + test.trigger + " is not on partition public.fresh: " + test.obstacle}, *warnings)
		require.Zero(t, pgtest.Scalar[int64](t, app, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'fresh'::regclass AND tgname = $1", test.trigger))
		pgtest.Exec(t, app, "ROLLBACK")
	}
}

// A function of the right name that another role has put into the schema is not ours, nor may its owner read the partition.
func TestEventTriggerInstallsFunctionsOfSextonsOwnerOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	b.installEvent(id("events"))
	app, warnings := b.owner()
	b.Exec("ALTER FUNCTION sexton.track_truncate() OWNER TO " + pgx.Identifier{app.Config().User}.Sanitize())
	pgtest.Exec(t, app, "CREATE TABLE fresh PARTITION OF events FOR VALUES FROM (20) TO (30)")
	require.Equal(t, []string{"Sexton: trigger sexton_truncate is not on partition public.fresh: " +
		"the function of its root's trigger does not belong to the owner of Sexton's tables"}, *warnings)
}

func TestEventTriggerQuotesNames(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	app, warnings := b.owner()
	names, roots := hostileNames(), []triggers.Parent{}
	for i, name := range names {
		root := triggers.Parent{Schema: name, Table: names[(i+1)%len(names)], KeyColumns: []string{names[(i+2)%len(names)]}}
		roots = append(roots, root)
		b.Exec("CREATE SCHEMA " + pgx.Identifier{name}.Sanitize() + " AUTHORIZATION " + pgx.Identifier{app.Config().User}.Sanitize())
		key := pgx.Identifier{root.KeyColumns[0]}.Sanitize()
		pgtest.Exec(t, app, "CREATE TABLE "+pgx.Identifier{name, root.Table}.Sanitize()+" ("+key+" bigint) PARTITION BY RANGE ("+key+")")
	}
	b.cfg.Truncate = triggers.Capture
	b.installEvent(roots...)
	for i, root := range roots {
		partition := pgx.Identifier{root.Schema, names[(i+3)%len(names)]}.Sanitize()
		pgtest.Exec(t, app, "SET standard_conforming_strings = off; SET quote_all_identifiers = on; SET backslash_quote = on; CREATE TABLE "+
			partition+" PARTITION OF "+pgx.Identifier{root.Schema, root.Table}.Sanitize()+" DEFAULT")
	}
	require.Empty(t, *warnings)
	require.Empty(t, b.status(roots...))
}

// The command that renames a root is the application's: its partitions stay unlocked. One that comes from another root gets the new name.
func TestEventTriggerLeavesPartitionsOfARenamedRoot(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned, "CREATE TABLE others (id bigint, note text) PARTITION BY RANGE (id)")
	b.installEvent(id("events"), id("others"))
	app, warnings := b.owner()
	const args = "SELECT tgrelid::text, tgname::text, xmin::text, encode(tgargs, 'hex') FROM pg_trigger WHERE tgname ~ '^sexton_' ORDER BY 1, 2"
	before := b.Rows(args)
	pgtest.Exec(t, app, "ALTER TABLE events RENAME TO happenings")
	require.Equal(t, before, b.Rows(args))

	b.Exec("DELETE FROM events_low; ALTER TABLE happenings DETACH PARTITION events_low; ALTER TABLE others ATTACH PARTITION events_low DEFAULT; DROP TABLE happenings")
	require.Empty(t, *warnings)
	require.Empty(t, b.status(id("others")))
}

func TestEventTriggerNeedsASuperuserOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	role := b.CreateRole()
	name := pgx.Identifier{role}.Sanitize()
	b.Exec("GRANT CREATE ON SCHEMA public TO " + name + "; GRANT sexton_owner TO " + name)
	for _, table := range b.Rows("SELECT relid::text FROM pg_partition_tree('events')") {
		b.Exec("ALTER TABLE " + table[0] + " OWNER TO " + name)
	}
	conn := b.connect(b.AsRole(role))

	b.cfg.EventTrigger = new(true)
	before := b.catalogue()
	_, err := triggers.Install(t.Context(), conn, b.cfg, []triggers.Parent{id("events")})
	var refused *triggers.NoSuperuserError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "only a superuser may create an event trigger; have one run in this database, then repeat the command:\n\nBEGIN;\nDROP FUNCTION")
	require.Equal(t, before, b.catalogue(), "nothing changed")

	b.Exec(refused.SQL)
	report := pgtest.Must(triggers.Install(t.Context(), conn, b.cfg, []triggers.Parent{id("events")}))(t)
	require.Len(t, report.Triggers, 10)
	require.Equal(t, 1, report.Unchanged)
	b.cfg.EventTrigger = nil
	for damage, detail := range map[string]string{
		"ALTER EVENT TRIGGER sexton_new_partitions DISABLE":                         "the event trigger is disabled, or fires for replicas too",
		"DROP EVENT TRIGGER sexton_new_partitions":                                  "new partitions wait for the worker, and deletions there go unrecorded until then",
		"ALTER FUNCTION sexton.track_new_partitions() OWNER TO sexton_owner":        "its function is not SECURITY DEFINER, or belongs to no superuser",
		"ALTER FUNCTION sexton.track_new_partitions() SECURITY INVOKER":             "its function is not SECURITY DEFINER, or belongs to no superuser",
		"ALTER FUNCTION sexton.track_new_partitions() RESET search_path":            "its function is not as installed",
		"ALTER FUNCTION sexton.track_new_partitions() SET search_path = public, pg": "its function is not as installed",
	} {
		b.Exec(damage)
		findings := pgtest.Must(triggers.Status(t.Context(), conn, b.cfg, []triggers.Parent{id("events")}))(t)
		require.Len(t, findings, 1)
		require.Equal(t, detail, findings[0].Detail)
		require.True(t, findings[0].Drift())
		require.Len(t, b.installEvent(id("events")).Triggers, 1)
		b.cfg.EventTrigger = nil
		require.Empty(t, b.status(id("events")))
	}

	// Taking it away needs the owner of the schema only.
	b.cfg.EventTrigger = new(false)
	report = pgtest.Must(triggers.Install(t.Context(), conn, b.cfg, []triggers.Parent{id("events")}))(t)
	require.Equal(t, []triggers.Change{{Trigger: triggers.EventTrigger, Action: triggers.Dropped}}, report.Triggers)
	require.Empty(t, b.Rows("SELECT evtname FROM pg_event_trigger"))
	b.installEvent(id("events"))
	report = pgtest.Must(triggers.Uninstall(t.Context(), conn, b.cfg))(t)
	require.Len(t, report.Triggers, 11)
	require.Empty(t, b.Rows("SELECT evtname FROM pg_event_trigger"))
	require.Equal(t, before, b.catalogue())
}
