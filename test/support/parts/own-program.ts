import { tmpdir } from 'node:os'
import { join } from 'node:path'

/**
 * What a program of this repository gets of this process's environment: where programs are, and where Node keeps what it has compiled. With the latter it starts
 * in half the processor time (vitest.config.ts says where that is). It has no sign-ins of the person who runs the tests.
 */
export function programEnvironment(): Record<string, string> {
  const names = ['PATH', 'NODE_COMPILE_CACHE'] as const
  const inherited = Object.fromEntries(names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])))
  return { ...inherited, XDG_CONFIG_HOME: join(tmpdir(), 'taproot-without-sign-ins') }
}
