import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { ensurePart } from '../../../tools/parts.js'
import { jsonLines, type Operation } from './history.ts'

/** A part of the history that no order of its operations explains. */
export interface Failure {
  /**
   * `record <kind> <uid>`, `members <kind> <group>`, `lists <kind> <group>`, `name <kind> <group>:<name>`, `tag <tag>`, `makers <group> <identity>`,
   * `refusal <kind> <uid>` or `rights <group> <identity>`.
   */
  readonly partition: string
  /** How many operations it has. */
  readonly ops: number
  /** What is wrong, for people. */
  readonly info: string
}

/** What the checker says of a history. */
export interface ConditionStatus {
  /** True where every part was checked and none failed. */
  readonly ok: boolean
  /** Operations that were checked. */
  readonly checked: number
  readonly partitions: number
  readonly failures: readonly Failure[]
  /** Parts that could not be decided in time: such a history counts as not ok. */
  readonly unknown: readonly string[]
}

/** How a history is checked. */
export interface CheckOptions {
  /** How long one part may take, in seconds; 20 by default. */
  readonly timeoutSeconds?: number
}

/**
 * Runs the history checker (tools/parts/history-checker). Rejects with its complaint where it can't be built, is given what is no history, or does not run
 * to its end.
 */
export async function checkHistory(history: { readonly operations: readonly Operation[] }, options: CheckOptions = {}): Promise<ConditionStatus> {
  const part = ensurePart('history-checker')
  if (!('path' in part)) throw new Error(part.reason)
  const checker = spawn(part.path, [`-patience=${Math.ceil((options.timeoutSeconds ?? 20) * 1e9)}ns`], { stdio: ['pipe', 'pipe', 'pipe'] })
  const exited = once(checker, 'close')
  let output = ''
  let complaint = ''
  checker.stdout.on('data', (chunk) => (output += String(chunk)))
  checker.stderr.on('data', (chunk) => (complaint += String(chunk)))
  try {
    await pipeline(Readable.from(jsonLines(history.operations)), checker.stdin)
  } catch (error) {
    // It ended before it had read everything: what it says tells more.
    complaint += `\n${String(error)}`
  }
  await exited
  if (checker.exitCode !== 0 || output === '') throw new Error(`the history checker failed: ${complaint.trim()}`)
  // The program prints a verdict and nothing else.
  return JSON.parse(output) as ConditionStatus
}
