import type { Log } from '../../../src/base/log.ts'
import { systemRandom } from '../../../src/server/runtime.ts'
import { openTracing, type RunningTracing } from '../../../src/server/telemetry/tracing.ts'

/** Opens tracing as with these variables in the environment of the process, where OpenTelemetry's exporter reads them. They are removed again. */
export async function openTracingWith(env: Readonly<Record<string, string>>, log: Log): Promise<RunningTracing> {
  Object.assign(process.env, env)
  try {
    const tracing = await openTracing({ env, log, random: systemRandom, role: 'dev' })
    if (tracing === undefined) throw new Error('tracing is off')
    return tracing
  } finally {
    for (const name of Object.keys(env)) delete process.env[name]
  }
}
