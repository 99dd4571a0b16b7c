package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
)

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir := folder(t, "databases: {main: {url: \""+url+"\"}}\nhttp: {listen: \":1\", user: ann, password_file: word, token_file: \""+filepath.Join(t.TempDir(), "token")+"\"}\n")
	load := func(environ ...string) (*config.Config, error) {
		return config.Load(config.Options{Path: filepath.Join(dir, "sexton.yaml"), Environ: environ})
	}
	_, err := load()
	require.ErrorContains(t, err, "http.password_file: names a file that cannot be read: no such file or directory")
	require.ErrorContains(t, err, "http.token_file: names a file that cannot be read")
	require.NotContains(t, err.Error(), "http.user", "what follows from it is not said as well")

	write(t, dir, "word", "geheim 1 \n")
	token := write(t, t.TempDir(), "token", "geheim-2")
	c, err := load("SEXTON_HTTP__TOKEN_FILE=" + token)
	require.NoError(t, err)
	require.Equal(t, "geheim 1 ", string(c.HTTP.Password), "only the line's end is not part of it")
	require.Equal(t, "geheim-2", string(c.HTTP.Token))
	shown := string(c.Show().YAML())
	require.NotContains(t, shown, "geheim")
	require.NotContains(t, shown, "***", "the file is named instead")
	require.Contains(t, shown, `password_file: `+filepath.Join(dir, "word"))

	for content, want := range map[string]string{
		"":                         "is empty",
		"\n":                       "is empty",
		"geheim\nzwei\n":           "several lines",
		strings.Repeat("x", 5<<10): "more than 4096 bytes",
	} {
		write(t, dir, "word", content)
		_, err := load("SEXTON_HTTP__TOKEN_FILE=" + token)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "geheim")
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "word")))
	_, err = load("SEXTON_HTTP__TOKEN_FILE="+token, "SEXTON_HTTP__TOKEN=geheim", "SEXTON_HTTP__PASSWORD_FILE=", "SEXTON_HTTP__USER=")
	require.ErrorContains(t, err, "SEXTON_HTTP__TOKEN_FILE: is set beside http.token (keep one of them)")
}
