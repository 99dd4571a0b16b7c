package yamlfile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

func decodeTexts(t *testing.T, value string) (yamlfile.Texts, yamlfile.Places, error) {
	t.Helper()
	doc, problems := yamlfile.Parse("f.yml", []byte("names: "+value+"\n"))
	require.NotNil(t, doc, problems)
	var target struct {
		Names yamlfile.Texts `yaml:"names"`
	}
	places, found := doc.Decode(doc.Root, "", &target)
	problems.Add(found...)
	return target.Names, places, problems.Err()
}

func TestDecodeOneTextOrAList(t *testing.T) {
	t.Parallel()

	for value, want := range map[string]yamlfile.Texts{
		"a": {"a"}, "'1'": {"1"}, "''": {""}, "[a]": {"a"}, "[b, a]": {"b", "a"}, "[]": {}, "a, b": {"a, b"},
	} {
		texts, places, err := decodeTexts(t, value)
		require.NoError(t, err)
		require.Equal(t, want, texts, value)
		require.Equal(t, problem.Position{File: "f.yml", Line: 1, Column: 8}, places["names"].Position)
	}
	_, places, err := decodeTexts(t, "[b, a]")
	require.NoError(t, err)
	require.Equal(t, problem.Position{File: "f.yml", Line: 1, Column: 12}, places["names[1]"].Position)
}

func TestDecodeTextsErrors(t *testing.T) {
	t.Parallel()

	for value, want := range map[string]string{
		"~":      "f.yml:1:1: names: has no value (write one, or remove the key)",
		"7":      "f.yml:1:8: names: must be a text, not a number (put it in quotes)",
		"{a: b}": "f.yml:1:8: names: must be a text or a list of texts, not a mapping",
		"[a, 7]": "f.yml:1:12: names[1]: must be a text, not a number (put it in quotes)",
		"[a, ~]": "f.yml:1:12: names[1]: has no value (write one, or remove the key)",
	} {
		_, _, err := decodeTexts(t, value)
		require.EqualError(t, err, want)
	}
}
