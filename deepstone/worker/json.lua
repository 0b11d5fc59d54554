-- JSON for workers in Lua, with nothing but the language itself. Numbers keep all their digits, and objects that are
-- written keep the order of their keys, as in Python.

local json = {}

json.null = setmetatable({}, {__tostring = function() return 'null' end})

local ARRAY, OBJECT = {}, {}

-- A list, even if it is empty: a plain empty table is written as an object.
function json.array(list)
   return setmetatable(list or {}, ARRAY)
end

-- An object whose keys are written in the order of these {key, value} pairs.
function json.object(pairs)
   return setmetatable(pairs or {}, OBJECT)
end

local ESCAPES = {
   ['"'] = '\\"', ['\\'] = '\\\\', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t',
}

local function escape(character)
   return ESCAPES[character] or string.format('\\u%04x', character:byte())
end

local function text(value)
   return '"' .. value:gsub('[%c"\\\127]', escape) .. '"'
end

local function number(value)
   if value ~= value or value == math.huge or value == -math.huge then
      error('JSON has no number for ' .. tostring(value))
   end
   if value == math.floor(value) and math.abs(value) < 2^53 then
      return string.format('%d', value)
   end
   return string.format('%.17g', value)
end

local write

local function write_list(list, into)
   into[#into + 1] = '['
   for place, value in ipairs(list) do
      if place > 1 then
         into[#into + 1] = ','
      end
      write(value, into)
   end
   into[#into + 1] = ']'
end

local function write_pairs(pairs, into)
   into[#into + 1] = '{'
   for place, pair in ipairs(pairs) do
      into[#into + 1] = (place > 1 and ',' or '') .. text(tostring(pair[1])) .. ':'
      write(pair[2], into)
   end
   into[#into + 1] = '}'
end

local function sorted(object)
   local found = {}
   for key, value in pairs(object) do
      found[#found + 1] = {key, value}
   end
   table.sort(found, function(a, b) return tostring(a[1]) < tostring(b[1]) end)
   return found
end

local function write_table(value, into)
   local kind = getmetatable(value)
   if kind == OBJECT then
      write_pairs(value, into)
   elseif kind == ARRAY or #value > 0 then
      write_list(value, into)
   else
      write_pairs(sorted(value), into)
   end
end

function write(value, into)
   local kind = type(value)
   if value == json.null then
      into[#into + 1] = 'null'
   elseif kind == 'table' then
      write_table(value, into)
   elseif kind == 'string' then
      into[#into + 1] = text(value)
   elseif kind == 'number' then
      into[#into + 1] = number(value)
   elseif kind == 'boolean' then
      into[#into + 1] = tostring(value)
   else
      error('JSON has no ' .. kind)
   end
end

function json.encode(value)
   local into = {}
   write(value, into)
   return table.concat(into)
end

local UNESCAPES = {b = '\b', f = '\f', n = '\n', r = '\r', t = '\t', ['"'] = '"', ['\\'] = '\\', ['/'] = '/'}

local function wrong(source, place)
   error('not JSON at character ' .. place .. ': ' .. source:sub(place, place + 20), 0)
end

-- The code point as UTF-8.
local function utf8(code)
   if code < 0x80 then
      return string.char(code)
   elseif code < 0x800 then
      return string.char(0xc0 + math.floor(code / 0x40), 0x80 + code % 0x40)
   elseif code < 0x10000 then
      return string.char(0xe0 + math.floor(code / 0x1000), 0x80 + math.floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
   end
   return string.char(
      0xf0 + math.floor(code / 0x40000),
      0x80 + math.floor(code / 0x1000) % 0x40,
      0x80 + math.floor(code / 0x40) % 0x40,
      0x80 + code % 0x40
   )
end

-- An escape at `place`, after its backslash: the characters that it means, and the place after it.
local function read_escape(source, place)
   local simple = UNESCAPES[source:sub(place, place)]
   if simple then
      return simple, place + 1
   end
   local digits = source:match('^u(%x%x%x%x)', place)
   if not digits then
      wrong(source, place)
   end
   local code = tonumber(digits, 16)
   place = place + 5
   if code >= 0xd800 and code < 0xdc00 then  -- the first half of a pair
      local second = source:match('^\\u(%x%x%x%x)', place)
      if not second then
         wrong(source, place)
      end
      code = 0x10000 + (code - 0xd800) * 0x400 + (tonumber(second, 16) - 0xdc00)
      place = place + 6
   end
   return utf8(code), place
end

local function read_text(source, place)
   local parts = {}
   while true do
      local stop = source:find('["\\]', place)
      if not stop then
         wrong(source, place)
      end
      parts[#parts + 1] = source:sub(place, stop - 1)
      if source:sub(stop, stop) == '"' then
         return table.concat(parts), stop + 1
      end
      parts[#parts + 1], place = read_escape(source, stop + 1)
   end
end

local read

local function after_space(source, place)
   return source:find('[^ \t\r\n]', place) or #source + 1
end

-- The members of a list or an object, each read by `one`; and the place after the closing bracket.
local function read_members(source, place, closing, one)
   place = after_space(source, place)
   if source:sub(place, place) == closing then
      return place + 1
   end
   while true do
      place = after_space(source, one(place))
      local next = source:sub(place, place)
      if next == closing then
         return place + 1
      elseif next ~= ',' then
         wrong(source, place)
      end
      place = after_space(source, place + 1)
   end
end

local function read_list(source, place)
   local list = json.array()
   local after = read_members(source, place, ']', function(at)
      local value, rest = read(source, at)
      list[#list + 1] = value
      return rest
   end)
   return list, after
end

local function read_object(source, place)
   local object = {}
   local after = read_members(source, place, '}', function(at)
      if source:sub(at, at) ~= '"' then
         wrong(source, at)
      end
      local key, rest = read_text(source, at + 1)
      rest = after_space(source, rest)
      if source:sub(rest, rest) ~= ':' then
         wrong(source, rest)
      end
      object[key], rest = read(source, rest + 1)
      return rest
   end)
   return object, after
end

local WORDS = {['true'] = true, ['false'] = false, null = json.null}

function read(source, place)
   place = after_space(source, place)
   local first = source:sub(place, place)
   if first == '{' then
      return read_object(source, place + 1)
   elseif first == '[' then
      return read_list(source, place + 1)
   elseif first == '"' then
      return read_text(source, place + 1)
   end
   local word = source:match('^%l+', place)
   if word and WORDS[word] ~= nil then
      return WORDS[word], place + #word
   end
   local digits = source:match('^-?%d[%d.eE+-]*', place)
   if not tonumber(digits) then
      wrong(source, place)
   end
   return tonumber(digits), place + #digits
end

-- The value of a text. Lists are tables from 1 on, null is `json.null`.
function json.decode(source)
   local value, place = read(source, 1)
   if after_space(source, place) <= #source then
      wrong(source, place)
   end
   return value
end

return json
