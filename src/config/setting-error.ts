import { errorMessage } from '../base/error-text.ts'
import { settingOf } from './setting.ts'

/**
 * The error for a setting that is missing (`value` is undefined), or that names a file, folder or address which cannot be used. The message names the setting,
 * its variable and the reason.
 */
export class SettingError extends Error {
  override readonly name = 'SettingError'
  constructor(key: string, value: string | undefined, cause: unknown) {
    super(`${key} (${settingOf(key).variable})${value === undefined ? ' is missing' : `: ${value}`}: ${reasonOf(cause)}`, { cause })
  }
}

/** Returns the message of an error. For a system error, omits the call and path that Node appends. */
function reasonOf(cause: unknown): string {
  return cause instanceof Error && 'syscall' in cause ? cause.message.replace(/, \w+ '.*$/, '') : errorMessage(cause)
}

/** Runs `work`, which uses the file, folder or address that a setting names. Throws SettingError if it fails. */
export function withSetting<T>(key: string, value: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw new SettingError(key, value, error)
  }
}
