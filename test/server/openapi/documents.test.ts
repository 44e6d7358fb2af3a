import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { env, execPath } from 'node:process'
import { expect, inject, onTestFinished, test } from 'vitest'
import { requirePart } from '../../support/parts/require-part.ts'
import { makeOrganisation, startTestServer } from '../../support/test-server.ts'
import { fullTierDescribe } from '../../support/tier.ts'

const root = join(import.meta.dirname, '../../..')
const fileOf = (version: string): string => join(root, `src/server/openapi/${version}.json`)

/** Runs a program. Returns its output, and its exit code: undefined if it was killed. */
function run(program: string, args: readonly string[], cwd = root): Promise<{ code: number | undefined; output: string }> {
  const options = { cwd, env: { ...env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' }, maxBuffer: 256 * 1024 * 1024 }
  return new Promise((resolve) => {
    const child = execFile(program, args, options, (_error, stdout, stderr) => resolve({ code: child.exitCode ?? undefined, output: `${stdout}${stderr}` }))
  })
}

test.each(['v2', 'v1'])('Redocly finds no error and no warning in the OpenAPI document of %s', async (version) => {
  const require = createRequire(import.meta.url)
  const redocly = join(dirname(require.resolve('@redocly/cli/package.json')), 'bin/cli.js')
  const { code, output } = await run(execPath, [redocly, 'lint', '--extends=recommended-strict', '--format=stylish', fileOf(version)])
  expect(code, output).toBe(0)
})

fullTierDescribe('independent programs in Python', () => {
  test.each(['v2', 'v1'])('openapi-spec-validator accepts the OpenAPI document of %s', async (version) => {
    const { code, output } = await run(requirePart('openapi-checkers'), ['-m', 'openapi_spec_validator', fileOf(version)])
    expect(code, output).toBe(0)
  })

  test.each([
    ['/openapi.json', 100],
    ['/openapi-v1.json', 60],
  ])('schemathesis finds no answer of 500 or above, and none outside of the document, at %s', { timeout: 1_200_000 }, async (path, operations) => {
    const python = requirePart('openapi-checkers')
    const server = await startTestServer({ env: { TAPROOT_RATE_LIMIT_ENABLED: 'false', TAPROOT_EVENTS_DELIVER: 'false' } })
    const folder = await mkdtemp(join(tmpdir(), 'taproot-schemathesis-'))
    onTestFinished(async () => {
      await server.stop()
      await rm(folder, { recursive: true, force: true })
    })
    const { token } = await makeOrganisation(server)
    const { code, output } = await run(
      python,
      [
        ...['-m', 'schemathesis.cli', `--config-file=${join(import.meta.dirname, 'schemathesis.toml')}`, 'run', `${server.config.baseUrl}${path}`],
        ...[`--header=Authorization: Bearer ${token}`, '--max-examples=5', `--seed=${inject('combinationSeed')}`],
        ...['--continue-on-failure', '--no-shrink', '--no-color', '--warnings=off'],
      ],
      folder,
    )
    expect(code, output.slice(-20_000)).toBe(0)
    expect(Number(/Tested: (\d+)/.exec(output)?.[1])).toBeGreaterThan(operations)
    expect(server.logs.filter(({ level }) => level === 'error')).toEqual([])
  })
})
