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
  /** The number of its operations. */
  readonly ops: number
  /** The fault, for people. */
  readonly info: string
}

/** The result of the history checker. */
export interface ConditionStatus {
  /** True if every part was checked and none failed. */
  readonly ok: boolean
  /** The number of checked operations. */
  readonly checked: number
  readonly partitions: number
  readonly failures: readonly Failure[]
  /** Parts that could not be decided in time. Such a history is not ok. */
  readonly unknown: readonly string[]
}

/** Options of a check. */
export interface CheckOptions {
  /** Maximum time for one part in seconds; 20 by default. */
  readonly timeoutSeconds?: number
}

/**
 * Runs the history checker (tools/parts/history-checker). Rejects with its error output if it can't be built, gets an invalid history, or does not run to its
 * end.
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
    // It ended before it had read everything; its own message explains more.
    complaint += `\n${String(error)}`
  }
  await exited
  if (checker.exitCode !== 0 || output === '') throw new Error(`the history checker failed: ${complaint.trim()}`)
  // The program prints only its result.
  return JSON.parse(output) as ConditionStatus
}
