package riverjobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

func parsed(t *testing.T, text string) []definitions.Definition {
	return pgtest.Must(definitions.Parse(definitions.File{Name: "definitions.yml", Data: []byte(text)}))(t)
}

func digestOf(c *config.Config, defs []definitions.Definition) string {
	return Generations(c, defs)[0].Digest
}

func TestDigestDependsOnTheMeaningOnly(t *testing.T) {
	t.Parallel()
	c := configuration(t)
	digest := func(text string) string { return digestOf(c, parsed(t, text)) }
	same := digest(definitionsFile)
	require.Regexp(t, "^1:[0-9a-f]{16}$", same)
	require.Equal(t, same, digest(`# another order, other limits and labels, and the default spelt out
public.notes:
  - {table: public.parents, column: parent_id, on_delete: async_nullify, worker_class: LooseForeignKeys::CleanupWorker}
children:
  - {table: parents, column: parent_id, on_delete: async_delete, delete_limit: 7, database: main}
`))
	for _, other := range []string{
		strings.Replace(definitionsFile, "async_nullify", "async_delete", 1),
		strings.Replace(definitionsFile, "parent_id", "id", 1),
		strings.Replace(definitionsFile, "notes:", "app.notes:", 1),
		strings.Replace(definitionsFile, "async_nullify", "async_nullify, conditions: [{column: id, value: 1}]", 1),
		definitionsFile + "labels: [{table: parents, column: parent_id, on_delete: async_delete}]",
	} {
		require.NotEqual(t, same, digest(other), other)
	}
	lists := configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_PLACEHOLDER_USERS__ENABLED=true")
	all := Generations(lists, nil)
	require.Len(t, all, 3)
	moved := *lists
	moved.GhostUsers.Move = append([]config.MoveColumns{{Table: "drafts", Columns: []string{"user_id"}}},
		lists.GhostUsers.Move...)
	moved.PlaceholderUsers.References = lists.PlaceholderUsers.References[1:]
	changed := Generations(&moved, nil)
	require.Equal(t, all[0].Digest, changed[0].Digest)
	require.NotEqual(t, all[1].Digest, changed[1].Digest)
	require.NotEqual(t, all[2].Digest, changed[2].Digest)
}

// workerWith returns the dependencies of a worker that has loaded the given definitions.
func (b bundle) workerWith(holder string, defs []definitions.Definition) Deps {
	deps := b.deps
	deps.Bindings, deps.Definitions = &Bindings{}, defs
	deps.Runner = &jobrun.Runner{Logger: deps.Logger, Leases: &lease.Manager{
		Jobs: b.db.Connected, Holder: holder, Digests: GenerationDigests(Generations(deps.Config, defs)),
	}}
	return deps
}

// install installs triggers and generations, as `sexton triggers install` does, and
// returns the added entries.
func (b bundle) install(t *testing.T, defs []definitions.Definition, parents ...string) map[string]bool {
	tracked := make([]triggers.Parent, len(parents))
	for i, table := range parents {
		tracked[i] = triggers.Parent{Schema: "public", Table: table, KeyColumns: []string{"id"}}
	}
	b.db.TrackKeys(t, tracked...)
	added, _ := pgtest.Must2(InstallGenerations(t.Context(), b.db.Connected, b.deps.Databases,
		Generations(b.deps.Config, defs), "ann"))(t)
	return added
}

func (b bundle) runPass(t *testing.T, deps Deps, name string) jobrun.Report {
	return pgtest.Must(run(t.Context(), deps, LooseForeignKeysCleanupArgs{Database: name}))(t)
}

const onlyChildren = "children: [{table: parents, column: parent_id, on_delete: async_delete}]"

func TestWorkerWithOtherDefinitionsSkipsTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	both, one := b.deps.Definitions, parsed(t, onlyChildren)
	earlier, later := b.workerWith("earlier", one), b.workerWith("later", both)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, jobrun.Done, b.runPass(t, earlier, "main").Outcome,
		"without an installed generation, any worker may run the job")

	require.Len(t, b.install(t, one, "parents"), 1)
	added := b.install(t, both, "parents")
	require.Equal(t, map[string]bool{DefinitionEntry(b.deps.Config, both[1]): true}, added, "only the new entry is added")
	require.Empty(t, b.install(t, both, "parents"))
	oldDigest, newDigest := Generations(b.deps.Config, one)[0].Digest, Generations(b.deps.Config, both)[0].Digest
	require.Equal(t, [][]string{{"ann", "install", "definitions of " + LooseForeignKeys, newDigest + ", was " + oldDigest}},
		b.db.Rows("SELECT actor, action, target, reason FROM sexton.audit"), "the change is recorded once")
	b.db.Exec("DELETE FROM parents WHERE id = 2")
	tokens := b.db.Rows("SELECT token FROM sexton.leases UNION ALL SELECT token FROM sexton.fences")
	report := b.runPass(t, earlier, "main")
	require.Equal(t, jobrun.Skipped, report.Outcome)
	require.True(t, report.Outdated)
	require.Contains(t, report.Reason, "the definitions installed in database main differ from the loaded ones")
	b.runPass(t, earlier, "main")
	require.Equal(t, 1, strings.Count(b.log.String(), "other_definitions_installed"),
		"once a minute")
	require.Equal(t, tokens, b.db.Rows("SELECT token FROM sexton.leases UNION ALL SELECT token FROM sexton.fences"),
		"the pass takes no lease")
	require.EqualValues(t, 1, b.db.Pending(t), "the tombstone is still pending")

	require.Equal(t, jobrun.Done, b.runPass(t, later, "main").Outcome)
	require.Zero(t, b.db.Pending(t))
	require.Equal(t, [][]string{{"1", "1"}, {"2", "NULL"}, {"3", "3"}},
		b.db.Rows("SELECT id, parent_id FROM notes ORDER BY id"),
		"children of a parent that was deleted before the definition was installed are kept")
}

// No transaction spans databases, so an interrupted installation may have changed only
// some of them. Passes that need two databases with different generations are skipped.
func TestPassesWaitDuringAPartialInstallation(t *testing.T) {
	t.Parallel()
	b, ci := setupTwoDatabases(t)
	all := b.deps.Definitions
	installed := all[:2]
	before, after := b.workerWith("before", installed), b.workerWith("after", all)
	b.install(t, installed, "parents")
	ci.Track(t, "builds")
	b.db.Exec("DELETE FROM parents WHERE id = 1")

	// The jobs database is the last one, and this installation does not reach it.
	pgtest.Must2(InstallGenerations(t.Context(), b.db.Connected, []database.Database{ci.Connected},
		Generations(b.deps.Config, installed), "ann"))(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), ci.Pool(), func(tx pgx.Tx) error {
		_, err := InstallGenerationsIn(t.Context(), tx, ci.Connected, false, Generations(b.deps.Config, all))
		return err
	}))
	require.Equal(t, jobrun.Skipped, b.runPass(t, after, "main").Outcome)
	require.Equal(t, jobrun.Done, b.runPass(t, before, "main").Outcome, "the pass does not need the other database")
	require.Equal(t, jobrun.Skipped, b.runPass(t, before, "ci").Outcome)
	require.Equal(t, jobrun.Skipped, b.runPass(t, after, "ci").Outcome)

	b.install(t, all, "parents")
	b.db.Exec("DELETE FROM parents WHERE id = 2")
	ci.Exec("UPDATE sexton.fences SET digest = '1:other'")
	require.Equal(t, jobrun.Skipped, b.runPass(t, after, "main").Outcome,
		"the children are in a database with another generation")
	require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}}, ci.Rows("SELECT id FROM builds ORDER BY id"))
	require.Equal(t, []string{"main", "ci"}, []string{b.deps.Databases[0].Name, b.deps.Databases[1].Name})
	differs := pgtest.Must(CompareGenerations(t.Context(), ci.Connected, Generations(b.deps.Config, all)))(t)
	require.Contains(t, differs[LooseForeignKeys], "(1:other) differ from these files")

	ci.Exec("UPDATE sexton.fences SET digest = NULL")
	require.Equal(t, jobrun.Done, b.runPass(t, after, "main").Outcome)
	require.Equal(t, [][]string{{"1"}, {"3"}}, ci.Rows("SELECT id FROM builds ORDER BY id"))
}

// A worker fetches no job of a queue while other definitions are installed than it has
// loaded.
func TestWorkerPausesQueuesOfOtherDefinitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	on := &driver{
		jobs: b.db.Connected, params: dbsqlc.ProducerQueuesParams{Queues: []string{LooseForeignKeys, "other"}},
		log: b.deps.Logger,
	}
	on.setGenerations(Generations(b.deps.Config, b.deps.Definitions))
	controlPayloads := func() []string {
		var payloads []string
		for _, n := range on.readQueues(t.Context()) {
			if n.Topic == controlTopic {
				payloads = append(payloads, n.Payload)
			}
		}
		return payloads
	}
	resumed := []string{`{"action":"resume","queue":"*"}`}
	require.Equal(t, resumed, controlPayloads())
	b.install(t, parsed(t, onlyChildren), "parents")
	for range 2 {
		require.ElementsMatch(t, []string{
			`{"action":"pause","queue":"` + LooseForeignKeys + `"}`,
			`{"action":"resume","queue":"other"}`,
		}, controlPayloads())
	}
	require.Equal(t, 1, strings.Count(b.log.String(), "other_definitions_installed"))
	b.install(t, b.deps.Definitions, "parents")
	require.Equal(t, resumed, controlPayloads())
	require.Contains(t, b.log.String(), "own_definitions_installed")
}

// Two workers with different definitions run passes while rows are deleted, workers
// reload their definitions and new definitions are installed, in random order and
// concurrently. Copies of the tables have native foreign keys, and each installation adds
// one of them. In the end, the workers have deleted the same rows as the native keys.
func TestRollingDeployLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			newDeploy(t, seed).run(t)
		})
	}
}

const deployTables = `
CREATE TABLE labels (id bigint PRIMARY KEY, child_id bigint);
CREATE INDEX ON labels (child_id);
TRUNCATE parents, children, notes;
INSERT INTO parents SELECT generate_series(1, 60);
INSERT INTO children SELECT n, n % 60 + 1 FROM generate_series(1, 240) AS n;
INSERT INTO notes SELECT n, n % 60 + 1 FROM generate_series(1, 240) AS n;
INSERT INTO labels SELECT n, n % 240 + 1 FROM generate_series(1, 480) AS n;
CREATE SCHEMA native;
CREATE TABLE native.parents (LIKE parents INCLUDING ALL);
CREATE TABLE native.children (LIKE children INCLUDING ALL);
CREATE TABLE native.notes (LIKE notes INCLUDING ALL);
CREATE TABLE native.labels (LIKE labels INCLUDING ALL);
INSERT INTO native.parents TABLE parents;
INSERT INTO native.children TABLE children;
INSERT INTO native.notes TABLE notes;
INSERT INTO native.labels TABLE labels;
`

// deploy is a database in which several generations of definitions are installed one
// after the other.
type deploy struct {
	bundle

	random *rand.Rand
	// generations are the generations to install. parents holds the tracked tables of
	// each generation, and keys the native foreign key that it adds.
	generations [][]definitions.Definition
	parents     [][]string
	keys        []string
	installed   int
	workers     []Deps
}

func newDeploy(t *testing.T, seed uint64) *deploy {
	b := setup(t)
	b.db.Exec("SET LOCAL sexton.truncate = 'ignore';" + deployTables)
	const labels = "\nlabels: [{table: children, column: child_id, on_delete: async_delete}]"
	d := &deploy{
		bundle: b, random: rand.New(rand.NewPCG(seed, 7)),
		generations: [][]definitions.Definition{
			parsed(t, onlyChildren), parsed(t, definitionsFile),
			parsed(t, definitionsFile+labels),
		},
		parents: [][]string{{"parents"}, {"parents"}, {"parents", "children"}},
		keys: []string{
			"ALTER TABLE native.children ADD FOREIGN KEY (parent_id) REFERENCES native.parents ON DELETE CASCADE NOT VALID",
			"ALTER TABLE native.notes ADD FOREIGN KEY (parent_id) REFERENCES native.parents ON DELETE SET NULL NOT VALID",
			"ALTER TABLE native.labels ADD FOREIGN KEY (child_id) REFERENCES native.children ON DELETE CASCADE NOT VALID",
		},
		installed: -1,
	}
	d.installNext(t)
	for i := range 2 {
		d.workers = append(d.workers, d.workerWith(fmt.Sprint("worker ", i), d.generations[0]))
	}
	return d
}

// installNext installs the next generation and then adds its native key. Rows of parents
// that were deleted before may remain.
func (d *deploy) installNext(t *testing.T) {
	if d.installed+1 == len(d.generations) {
		return
	}
	d.installed++
	d.install(t, d.generations[d.installed], d.parents[d.installed]...)
	d.db.Exec(d.keys[d.installed])
}

// randomParents returns n random IDs of parents. Some of these parents may already be
// deleted.
func (d *deploy) randomParents(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = d.random.Int64N(60) + 1
	}
	return ids
}

func (d *deploy) delete(ctx context.Context, ids []int64) error {
	return pgx.BeginFunc(ctx, d.db.Pool(), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM parents WHERE id = ANY ($1)", ids)
		if err == nil {
			_, err = tx.Exec(ctx, "DELETE FROM native.parents WHERE id = ANY ($1)", ids)
		}
		return err
	})
}

func (d *deploy) work(ctx context.Context, i int) error {
	_, err := run(ctx, d.workers[i], LooseForeignKeysCleanupArgs{Database: "main"})
	return err
}

func (d *deploy) run(t *testing.T) {
	for range 25 {
		switch w := d.random.IntN(2); d.random.IntN(6) {
		case 0, 1:
			require.NoError(t, d.delete(t.Context(), d.randomParents(3)))
		case 2:
			require.NoError(t, d.work(t.Context(), w))
		case 3: // A worker restarts or reloads with any of the generations.
			d.workers[w] = d.workerWith(fmt.Sprint("worker ", w), d.generations[d.random.IntN(len(d.generations))])
		default: // Both workers, a deletion and perhaps an installation run concurrently.
			var together sync.WaitGroup
			var failed [3]error
			together.Go(func() { failed[0] = d.work(t.Context(), 0) })
			together.Go(func() { failed[1] = d.work(t.Context(), 1) })
			ids := d.randomParents(4)
			together.Go(func() { failed[2] = d.delete(t.Context(), ids) })
			if d.random.IntN(2) == 0 {
				d.installNext(t)
			}
			together.Wait()
			require.NoError(t, errors.Join(failed[:]...))
		}
	}
	for d.installed+1 < len(d.generations) {
		d.installNext(t)
	}
	require.NoError(t, d.delete(t.Context(), d.randomParents(5)))
	d.workers[0] = d.workerWith("last", d.generations[d.installed])
	deadline := time.Now().Add(time.Minute)
	for d.db.Pending(t) > 0 {
		require.NoError(t, d.work(t.Context(), 1))
		require.NoError(t, d.work(t.Context(), 0))
		require.True(t, time.Now().Before(deadline), "tombstones are left")
	}
	for table, column := range map[string]string{"children": "parent_id", "notes": "parent_id", "labels": "child_id"} {
		parent := strings.ReplaceAll(column, "_id", "s")
		if parent == "childs" {
			parent = "children"
		}
		require.Empty(t, d.db.Rows(fmt.Sprintf(`SELECT id, %[2]s FROM %[1]s EXCEPT SELECT id, %[2]s FROM native.%[1]s
			EXCEPT SELECT id, NULL FROM %[1]s`, table, column)), "rows that native keys have removed from %s", table)
		require.Empty(t, d.db.Rows(fmt.Sprintf(`SELECT child.id FROM native.%[1]s AS child JOIN native.%[3]s AS parent ON parent.id = child.%[2]s
			WHERE NOT EXISTS (SELECT FROM %[1]s AS kept WHERE kept.id = child.id AND kept.%[2]s = child.%[2]s)`, table, column, parent)),
			"rows with a parent that are missing in %s", table)
	}
}
