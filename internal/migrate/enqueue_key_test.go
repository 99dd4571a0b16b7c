package migrate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/pgtest"
)

var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateRetryable, rivertype.JobStateScheduled,
}

// anyArgs are arguments of a kind that the program knows nothing about.
type anyArgs struct {
	kind   string
	values map[string]any
}

func (a anyArgs) Kind() string                 { return a.kind }
func (a anyArgs) MarshalJSON() ([]byte, error) { return json.Marshal(a.values) }

// taggedArgs are arguments as jobs declare them. The fields are not in the order of their names.
type taggedArgs struct {
	Name    string `json:"name"    river:"unique"`
	UserID  int64  `json:"user_id" river:"unique"`
	Enabled bool   `json:"enabled" river:"unique"`
}

func (taggedArgs) Kind() string { return "tagged" }

// TestEnqueueComputesRiversKey inserts the same job by River's client and by enqueue, in both orders.
func TestEnqueueComputesRiversKey(t *testing.T) {
	t.Parallel()
	d := jobsDatabase(t)
	client := pgtest.Must(river.NewClient(riverpgxv5.New(d.Pool()), &river.Config{Schema: "sexton", Logger: pgtest.Logger(t)}))(t)

	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.Custom(textOf(1, 100)).Draw(t, "kind")
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z_][a-z0-9_]{0,8}`), 0, 6, rapid.ID[string]).Draw(t, "names")
		args := anyArgs{kind: kind, values: map[string]any{}}
		types := map[string]string{}
		for _, name := range names {
			types[name], args.values[name] = argument(t, name)
		}
		requireSameJob(t, d, client, args, types, args.values)
	})
}

func TestEnqueueComputesRiversKeyOfTaggedFields(t *testing.T) {
	t.Parallel()
	d := jobsDatabase(t)
	client := pgtest.Must(river.NewClient(riverpgxv5.New(d.Pool()), &river.Config{Schema: "sexton", Logger: pgtest.Logger(t)}))(t)

	rapid.Check(t, func(t *rapid.T) {
		args := taggedArgs{
			Name: rapid.Custom(textOf(0, 30)).Draw(t, "name"), UserID: rapid.Int64().Draw(t, "user_id"), Enabled: rapid.Bool().Draw(t, "enabled"),
		}
		requireSameJob(t, d, client, args, map[string]string{"name": "text", "user_id": "bigint", "enabled": "boolean"},
			map[string]any{"name": args.Name, "user_id": args.UserID, "enabled": args.Enabled})
	})
}

// requireSameJob checks that River's client and enqueue write equal rows and take each other's for duplicates.
func requireSameJob(t *rapid.T, d *pgtest.Database, client *river.Client[pgx.Tx], args river.JobArgs, types map[string]string, values map[string]any) {
	d.Exec("DELETE FROM sexton.river_job")
	d.Exec("DELETE FROM sexton.job_kinds")
	encodedTypes := pgtest.Must(json.Marshal(types))(t)
	d.Exec("INSERT INTO sexton.job_kinds VALUES ($1, 'q', $2, '{}', false, 7)", args.Kind(), encodedTypes)
	insert := func() *rivertype.JobInsertResult {
		result := pgtest.Must(client.Insert(t.Context(), args, &river.InsertOpts{
			Queue: "q", MaxAttempts: 7, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: unfinished},
		}))(t)
		return result
	}
	given := writeJSON(t, values)
	bySQL := func() (id int64) {
		err := d.Pool().QueryRow(t.Context(), "SELECT sexton.enqueue($1, $2::text::jsonb)", args.Kind(), given).Scan(&id)
		require.NoError(t, err, given)
		return id
	}
	row := func() [][]string {
		return d.Rows(`SELECT to_jsonb(j) - '{id,created_at,scheduled_at}'::text[] FROM sexton.river_job AS j`)
	}

	inserted := insert()
	byRiver := row()
	require.Equal(t, inserted.Job.ID, bySQL(), "enqueue finds River's job; arguments %s", given)
	require.Equal(t, byRiver, row(), "and leaves it alone")

	d.Exec("DELETE FROM sexton.river_job")
	id := bySQL()
	require.Equal(t, byRiver, row(), "enqueue writes the row that River writes; arguments %s", given)
	second := insert()
	require.True(t, second.UniqueSkippedAsDuplicate, "River finds the job of enqueue")
	require.Equal(t, id, second.Job.ID)
}

// argument draws a type and a value of it, as Go has it.
func argument(t *rapid.T, name string) (string, any) {
	switch kind := rapid.SampledFrom([]string{"text", "bigint", "boolean"}).Draw(t, name+" type"); kind {
	case "text":
		return kind, rapid.Custom(textOf(0, 30)).Draw(t, name)
	case "bigint":
		return kind, rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, -1, math.MinInt64, math.MaxInt64, 1 << 53, 1<<53 + 1})).Draw(t, name)
	default:
		return kind, rapid.Bool().Draw(t, name)
	}
}

// textOf draws text rich in what encoders of JSON treat specially. Postgres has no character zero.
func textOf(minRunes, maxRunes int) func(*rapid.T) string {
	special := []rune("<>&\"'\\/\b\f\n\r\t\x01\x1f\x7f {}[]:,=%$ü表\u00a0\u0085\u2028\u2029\ufeff\ufffd\uffff\U0001f600\U0010ffff")
	anyRune := rapid.OneOf(rapid.SampledFrom(special), rapid.Rune().Filter(func(r rune) bool { return r != 0 }))
	return func(t *rapid.T) string {
		return string(rapid.SliceOfN(anyRune, minRunes, maxRunes).Draw(t, "runes"))
	}
}

// writeJSON writes an object as clients of all kinds may: members in any order, more or less escaped, numbers
// in several notations.
func writeJSON(t *rapid.T, values map[string]any) string {
	var members []string
	for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(values))).Draw(t, "order") {
		var encoded bytes.Buffer
		encoder := json.NewEncoder(&encoded)
		encoder.SetEscapeHTML(rapid.Bool().Draw(t, "escape"))
		require.NoError(t, encoder.Encode(values[name]))
		value := strings.TrimSpace(encoded.String())
		if number, ok := values[name].(int64); ok && number != 0 {
			value = fmt.Sprintf(rapid.SampledFrom([]string{"%d", "%d.0", "%de0", "%d0e-1"}).Draw(t, "notation"), number)
		}
		members = append(members, fmt.Sprintf(" %q :\n%s", name, value))
	}
	return "{" + strings.Join(members, ",") + "}"
}
