package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	riverjobs "sexton/river_jobs"
)

func TestArgumentsAreCheckedAgainstTheKind(t *testing.T) {
	t.Parallel()
	job := riverjobs.Job{
		Kind: "destroy", Args: map[string]string{
			"group_id": migrate.Bigint, "silent": migrate.Boolean,
			"note": migrate.Text,
		},
		Defaults: map[string]any{"silent": false},
	}
	for raw, want := range map[string]string{
		`{"group_id": 7, "note": "x"}`:                               "",
		`{"group_id": 9007199254740993, "note": "", "silent": true}`: "",
		``:                                    `the argument group_id is missing; destroy takes {"group_id": bigint, "note": text, "silent": boolean}`,
		`{"group_id": 7}`:                     "the argument note is missing",
		`[]`:                                  "must be a JSON object",
		`null`:                                "must be a JSON object",
		`{"group": 7}`:                        `the job has no argument "group"`,
		`{"group_id": 7.5, "note": "x"}`:      "the argument group_id must be a whole number",
		`{"group_id": null, "note": "x"}`:     "the argument group_id must be a whole number",
		`{"group_id": 7, "note": 3}`:          "the argument note must be a text",
		`{"group_id":7,"note":"","silent":1}`: "the argument silent must be true or false",
	} {
		_, err := completeArgs(job, raw)
		if want == "" {
			require.NoError(t, err, raw)
			continue
		}
		require.ErrorContains(t, err, want, raw)
	}
	args, err := completeArgs(job, `{"note": "x", "group_id": 9007199254740993}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"group_id": 9007199254740993, "note": "x", "silent": false}`, string(args))
	require.Contains(t, string(args), "9007199254740993", "all digits are kept")
	_, err = completeArgs(riverjobs.Job{Kind: "verify"}, `{"a": 1}`)
	require.ErrorContains(t, err, "verify takes no arguments")
}
