// Runs module.mjs in Node, with files of the folder.
import { readFile, writeFile } from 'node:fs/promises';
import { check } from './module.mjs';

await check(readFile, writeFile);
