import { errorMessage } from '../base/error-text.ts'
import { settingOf } from './setting.ts'

/** What a setting names can't be used, or it is missing (`value` undefined): one line that names the setting, its variable and the reason. */
export class SettingError extends Error {
  override readonly name = 'SettingError'
  constructor(key: string, value: string | undefined, cause: unknown) {
    super(`${key} (${settingOf(key).variable})${value === undefined ? ' is missing' : `: ${value}`}: ${reasonOf(cause)}`, { cause })
  }
}

/** The system's own words for a file fault, without the call and path that it repeats. */
function reasonOf(cause: unknown): string {
  return cause instanceof Error && 'syscall' in cause ? cause.message.replace(/, \w+ '.*$/, '') : errorMessage(cause)
}

/** Does what needs the file, folder or address that a setting names. Throws SettingError where it fails. */
export function withSetting<T>(key: string, value: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw new SettingError(key, value, error)
  }
}
