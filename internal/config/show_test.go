package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/pgtest"
	"sexton/internal/yamlfile"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// document writes dotted keys as YAML in flow style, numbers and booleans plain.
func document(values map[string]string) string {
	tree := map[string]any{"databases": map[string]any{"main": map[string]any{"url": url}}}
	for key, value := range values {
		parts := strings.Split(key, ".")
		at := tree
		for _, part := range parts[:len(parts)-1] {
			if at[part] == nil {
				at[part] = map[string]any{}
			}
			at = at[part].(map[string]any)
		}
		at[parts[len(parts)-1]] = value
		if raw := json.RawMessage(value); json.Valid(raw) && parts[len(parts)-1] != "token" {
			at[parts[len(parts)-1]] = raw
		}
	}
	// Marshalling strings and valid raw messages cannot fail.
	text, _ := json.Marshal(tree)
	return string(text)
}

func write(t require.TestingT, dir, name, text string) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// reveal is Show with the secrets back in place.
func reveal(c *config.Config) string {
	text := string(c.Show().YAML())
	for _, d := range c.Databases {
		for _, u := range []config.URL{d.URL, d.ListenURL} {
			text = strings.Replace(text, quoted(u.Hidden()), quoted(string(u)), 1)
		}
	}
	for key, secret := range map[string]config.Secret{"password": c.HTTP.Password, "token": c.HTTP.Token} {
		text = strings.Replace(text, "  "+key+": "+quoted("***"), "  "+key+": "+quoted(string(secret)), 1)
	}
	return text
}

func quoted(s string) string {
	text, _ := json.Marshal(strings.ReplaceAll(s, "${", "$${"))
	return string(text)
}

func TestShowRoundTrip(t *testing.T) {
	t.Parallel()

	dir := folder(t, `
databases:
  z:
    url: "postgres://app:geheim@localhost/app?sslpassword=geheim&application_name=x"
    listen_url: "host=localhost password = 'ge heim' dbname=app"
    schema: "null"
    tables: [ci_*, "$${X}"]
    limits: {runtime: 7s}
  a: {url: "`+url+`", pace: turbo}
jobs: {database: a, lock_timeout: 250ms}
loose_foreign_keys: {definitions: [b.yml, a.yml]}
ghost_users: {nullify: []}
http: {listen: ":1", user: "on", password: geheim, token: "geheim"}
`)
	first := pgtest.Must(config.Load(config.Options{Dir: dir}))(t)
	shown := string(first.Show().YAML())
	require.NotContains(t, shown, "heim")
	require.Contains(t, shown, `url: "postgres://app:***@localhost/app?sslpassword=***&application_name=x"`)
	require.Contains(t, shown, `listen_url: "host=localhost password = *** dbname=app"`)

	second := pgtest.Must(config.Load(config.Options{Path: write(t, t.TempDir(), "shown.yaml", reveal(first))}))(t)
	require.Equal(t, shown, string(second.Show().YAML()))
	require.Equal(t, reveal(first), reveal(second))
	require.Equal(t, first.HTTP, second.HTTP)
	require.Equal(t, []string{"z", "a"}, names(second))

	asJSON := pgtest.Must(json.Marshal(first.Show()))(t)
	require.NotContains(t, string(asJSON), "heim")
	var document struct {
		Databases json.RawMessage
		HTTP      struct{ Password string }
	}
	require.NoError(t, json.Unmarshal(asJSON, &document))
	require.True(t, strings.HasPrefix(string(document.Databases), `{"z":`), "databases keep their order")
	require.Equal(t, "***", document.HTTP.Password)
}

func TestShowHasEveryKeyWithItsDefault(t *testing.T) {
	t.Parallel()

	c := pgtest.Must(config.Load(config.Options{DatabaseURL: url, Dir: "/app"}))(t)
	require.Equal(t, string(pgtest.Must(os.ReadFile("testdata/defaults.yaml"))(t)), string(c.Show().YAML()))
}

func TestSecretsAreHiddenEverywhere(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"postgres://u:geheim@h:5432/d":                    "postgres://u:***@h:5432/d",
		"postgres://u:gehei@m@h/d":                        "postgres://u:***@h/d",
		"postgres://u:1#geheim@h/d":                       "postgres://u:***@h/d",
		"postgres://u:1/geheim@h/d":                       "postgres://u:***@h/d",
		"postgres://u@h,h2:1/d?password=geheim":           "postgres://u@h,h2:1/d?password=***",
		"postgres:///d?host=/tmp&%70assword=geheim&x=%zz": "postgres:///d?host=/tmp&%70assword=***&x=%zz",
		"postgres://u@h/d":                                "postgres://u@h/d",
		"s3://key:geheim@bucket?aws_secret=geheim":        "s3://key:***@bucket?aws_secret=***",
		`user=u password=geh\ eim host=h`:                 `user=u password=*** host=h`,
		`password='geh\'eim' host = h`:                    `password=*** host = h`,
		`host=h password = geheim`:                        `host=h password = ***`,
		`host=h password='geheim`:                         `host=h password=***`,
		`host=h password=`:                                `host=h password=`,
		"":                                                "",
	} {
		u := config.URL(text)
		require.Equal(t, want, u.Hidden())
		require.Equal(t, want+want+want, fmt.Sprintf("%v%s%#v", u, u, u))
		var logged strings.Builder
		slog.New(slog.NewTextHandler(&logged, nil)).Info("m", "url", u)
		require.NotContains(t, logged.String(), "geh", text)
	}
	require.Equal(t, "{      false false}", fmt.Sprint(config.HTTP{}))
	require.Equal(t, "{ u *** ***   false false}", fmt.Sprint(config.HTTP{User: "u", Password: "geheim", Token: "geheim"}))
}

// TestErrorsNeverRepeatValues puts a password where every value stands, by file, by ${VARIABLE} and by override.
func TestErrorsNeverRepeatValues(t *testing.T) {
	t.Parallel()

	const password = "geheim-4711"
	base := `databases: {main: {url: "` + url + `"}}` + "\n"
	refused := 0
	for _, leaf := range yamlfile.Leaves(config.Config{}) {
		path := strings.ReplaceAll(strings.Join(leaf.Path, "."), "*", "main")
		variable := "SEXTON_" + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
		for _, text := range []string{password, "postgres://u:" + password + "@h:p/d", "[" + password + "]"} {
			for _, attempt := range []struct{ file, variable string }{
				{document(map[string]string{path: text}), "UNUSED"},
				{document(map[string]string{path: "${PASSWORD}"}), "PASSWORD"},
				{base, variable},
			} {
				if _, err := load(t, attempt.file, attempt.variable+"="+text); err != nil {
					require.NotContains(t, err.Error(), password, path)
					refused++
				}
			}
		}
	}
	require.Greater(t, refused, 100)
}

func TestAbsoluteBucket(t *testing.T) {
	t.Parallel()
	for bucket, want := range map[config.URL]config.URL{
		"file://diffs": "file:///srv/diffs", "file:///diffs": "file:///diffs", "file://": "file://", "s3://diffs": "s3://diffs", "": "",
	} {
		require.Equal(t, want, config.AbsoluteBucket(bucket, "/srv"))
	}
}
