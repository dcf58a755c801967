"use strict";
{
  const text = document.getElementById("document");
  const members = JSON.parse(text.value);
  const tell = (words) => { document.getElementById("done").textContent = words; };
  const update = () => {
    for (const chosen of document.querySelectorAll("input[type=radio]:checked")) {
      members.decisions[Number(chosen.name.slice(7))].action = chosen.value;
    }
    text.value = JSON.stringify(members, null, 2) + "\n";
    const open = members.decisions.filter((one) => one.action === text.dataset.open);
    document.getElementById("open").textContent = String(open.length);
    tell("");
  };
  document.addEventListener("change", update);
  document.getElementById("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text.value], {type: "application/json"}));
    link.download = text.dataset.name;
    link.click();
    URL.revokeObjectURL(link.href);
    tell("saved");
  });
  document.getElementById("copy").addEventListener("click", () => {
    text.select();  // a page opened from a disk may not use the clipboard in any other way
    tell(document.execCommand("copy") ? "copied" : "select and copy the text");
  });
  update();
}
